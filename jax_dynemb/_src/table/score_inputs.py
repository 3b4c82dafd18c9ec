# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the scores, counts and the time that a lookup takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jax_dynemb._src.config import ScoreStrategy, TableConfig
from jax_dynemb._src.engines import Catalog, ScoreInputs
from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.scores import given, is_pair, score_words
from jax_dynemb._src.table.arguments import check_mapping

ByName = Mapping[str, Any]
_MOST_COUNT = 2**30 - 1  # above the clock (core/score.h)


def score_inputs_of(
    tables: Catalog[Any],
    ids: ByName,
    scores: ByName | None,
    counts: ByName | None,
    now: Any,
) -> ScoreInputs:
    """Returns what moves scores in one lookup, 0 where nothing was passed.

    ``ids`` and ``counts`` are by feature; ``scores`` are numbers by table, arrays by
    feature. ``now`` has the words of the time.

    Raises:
      TypeError: something else than dicts, numbers that are no integers, or a time
        that is no pair of words.
      ValueError: a table does not use them, a shape does not fit, or a number is out
        of range.
    """
    if not scores and not counts and now is None:
        return ScoreInputs({name: jnp.zeros(2, jnp.uint32) for name in tables.dynamic})
    scores, counts = scores or {}, counts or {}
    check_mapping(scores, "scores", "table", tables.tables)
    check_mapping(counts, "counts", "feature", tables.features)
    by_table, by_feature = _split(tables, ids, scores) if scores else ({}, {})
    for name in by_table:
        _check_customized(tables.dynamic_table(name, "scores"))
    time = None if now is None else _time(now)
    words = {
        name: _words(config, by_table.get(name), time)
        for name, config in tables.dynamic.items()
    }
    if not (by_feature or counts):
        return ScoreInputs(words, {}, {})
    of_ids = {f: _scores_of_ids(tables, ids, f, x) for f, x in by_feature.items()}
    uses = {}
    for feature, x in counts.items():
        _check_counts(tables.config_of(feature))
        uses[feature] = _counts(tables, ids, feature, x)
    return _filled(tables, ids, ScoreInputs(words, uses, of_ids))


def _split(
    tables: Catalog[Any], ids: ByName, scores: ByName
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separates scores of tables from those of features; one name may be both."""
    by_table, by_feature = {}, {}
    for name, x in scores.items():
        of_table = np.shape(x) == ()
        if is_pair(x) and name in tables.tables:
            of_table = True
            if name in ids and _shape(tables.config_of(name), ids[name]) == (2,):
                raise ValueError(
                    f"scores['{name}'] are uint32[2], which are the words of one score "
                    "of the table, or scores of its two ids. Give one score as a NumPy "
                    "uint64 or a Python int, and those of ids as int32[2] or as "
                    "uint32[2, 2] from jde.scores."
                )
        (by_table if of_table else by_feature)[name] = x
    return by_table, by_feature


def _words(config: TableConfig, score: Any, time: jax.Array | None) -> jax.Array:
    if config.score_strategy is ScoreStrategy.TIMESTAMP and time is not None:
        return time
    if score is None:
        return jnp.zeros(2, jnp.uint32)
    return jnp.stack(given(score_words(score, f"Table '{config.name}'", ())))


def _time(now: Any) -> jax.Array:
    if np.shape(now) != (2,) or getattr(now, "dtype", None) != np.uint32:
        raise TypeError(
            "now must be the words of a time, uint32[2]: pass jde.now() to the jitted "
            "step as an argument, so that each call brings its own time."
        )
    most = np.array([2**32 - 1, 2**30 - 2], np.uint32)  # no bit of a mark
    return jnp.minimum(jnp.asarray(now), most)


def _check_customized(config: TableConfig) -> None:
    if config.score_strategy is not ScoreStrategy.CUSTOMIZED:
        raise ValueError(
            f"Table '{config.name}' keeps its own scores; give scores only to tables "
            "with score_strategy='customized'."
        )


def _check_counts(config: TableConfig) -> None:
    if config.score_strategy is ScoreStrategy.LFU or config.admission is not None:
        return
    raise ValueError(
        f"Table '{config.name}' counts no uses; give counts only to tables with "
        "score_strategy='lfu' or with an admission rule."
    )


def _scores_of_ids(
    tables: Catalog[Any], ids: ByName, feature: str, scores: Any
) -> tuple[jax.Array, jax.Array]:
    """Returns the words of the scores of ids, as kernels take them."""
    config = tables.config_of(feature)
    _check_customized(config)
    if config.on_full == "compete":
        raise ValueError(
            f"Table '{config.name}' has on_full='compete', which compares rows "
            "with one score of the whole lookup. Give it one score, or use "
            "on_full='evict'."
        )
    expected = _shape_of(tables, ids, "scores", feature)
    return given(score_words(scores, f"Feature '{feature}'", expected))


def _counts(tables: Catalog[Any], ids: ByName, feature: str, numbers: Any) -> jax.Array:
    """Returns uint32 in the shape of the ids, in range."""
    expected = _shape_of(tables, ids, "counts", feature)
    array: Any = numbers if isinstance(numbers, jax.Array) else np.asarray(numbers)
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"Feature '{feature}': counts must be integers, not {array.dtype}."
        )
    if array.shape != expected:
        raise ValueError(
            f"Feature '{feature}': counts have shape {array.shape}, the ids "
            f"{expected}; give one number for each id."
        )
    if not isinstance(array, Tracer) and array.size:
        least, most = int(array.min()), int(array.max())
        if least < 0 or most > _MOST_COUNT:
            raise ValueError(
                f"Feature '{feature}': counts are from {least} to {most}, but must be "
                "from 0 to 2**30 - 1, what a row has room for. Count in larger units."
            )
    if array.dtype.kind == "i":
        array = jnp.maximum(array, 0)
    return jnp.minimum(jnp.asarray(array), _MOST_COUNT).astype(jnp.uint32)


def _shape_of(
    tables: Catalog[Any], ids: ByName, what: str, feature: str
) -> tuple[int, ...]:
    if feature not in ids:
        raise ValueError(
            f"{what} for '{feature}', but no ids for it. Features with ids: "
            f"{sorted(ids)}."
        )
    return _shape(tables.config_of(feature), ids[feature])


def _shape(config: TableConfig, ids: Any) -> tuple[int, ...]:
    """The shape of ids without the axis of their words."""
    values = ids.values if isinstance(ids, Jagged) else ids
    shape = np.shape(values)
    is_pairs = (
        config.key_dtype == "int64" and getattr(values, "dtype", None) == "uint32"
    )
    return shape[:-1] if is_pairs and shape[-1:] == (2,) else shape


def _filled(tables: Catalog[Any], ids: ByName, numbers: ScoreInputs) -> ScoreInputs:
    """Gives the other features of a customized table the score of the table, if any.

    A kernel takes scores of all ids of such a table, or of none.
    """
    some = {tables.config_of(f).name for f in [*numbers.counts, *numbers.scores]}
    scores = dict(numbers.scores)
    for feature, each in ids.items():
        config = tables.config_of(feature)
        if config.name not in some or feature in scores:
            continue
        if config.score_strategy is ScoreStrategy.CUSTOMIZED:
            shape = _shape(config, each)
            words = numbers.tables[config.name]
            scores[feature] = tuple(jnp.broadcast_to(word, shape) for word in words)
    return ScoreInputs(numbers.tables, numbers.counts, scores)
