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

from jax_dynemb.config import ScoreStrategy, TableConfig
from jax_dynemb.engines import Catalog, Given
from jax_dynemb.engines.shard import MAX_CUSTOMIZED, customized
from jax_dynemb.jagged import Jagged
from jax_dynemb.table._arguments import check_mapping

ByName = Mapping[str, Any]


def given_of(
    tables: Catalog[Any],
    ids: ByName,
    scores: ByName | None,
    counts: ByName | None,
    now: Any,
) -> Given:
    """Returns what moves scores in one lookup, 0 where nothing was passed.

    Args:
      tables: the collection.
      ids: by feature, in the order of the configs.
      scores: numbers by table, arrays by feature.
      counts: arrays by feature.
      now: the words of the time.

    Raises:
      TypeError: something else than dicts, numbers that are no integers, or a time
        that is no pair of words.
      ValueError: a table does not use them, a shape does not fit, or a number is out
        of range.
    """
    scores, counts = scores or {}, counts or {}
    check_mapping(scores, "scores", "table", tables.tables)
    check_mapping(counts, "counts", "feature", tables.features)
    by_table = {name: x for name, x in scores.items() if np.shape(x) == ()}
    by_feature = {name: x for name, x in scores.items() if name not in by_table}
    for name in by_table:
        _check_customized(tables.dynamic_table(name, "scores"))
    time = None if now is None else _time(now)
    words = {
        name: _words(config, by_table.get(name, 0), time)
        for name, config in tables.dynamic.items()
    }
    of_ids = {}
    for feature, x in by_feature.items():
        config = tables.config_of(feature)
        _check_customized(config)
        if config.on_full == "compete":
            raise ValueError(
                f"Table '{config.name}' has on_full='compete', which compares rows "
                "with one score of the whole lookup. Give it one score, or use "
                "on_full='evict'."
            )
        of_ids[feature] = _per_id(tables, ids, "scores", feature, x)
    uses = {}
    for feature, x in counts.items():
        _check_counts(tables.config_of(feature))
        uses[feature] = _per_id(tables, ids, "counts", feature, x)
    return _filled(tables, ids, Given(words, uses, of_ids))


def _words(config: TableConfig, score: Any, time: jax.Array | None) -> jax.Array:
    if config.score_strategy is ScoreStrategy.TIMESTAMP and time is not None:
        return time
    return jnp.stack([customized(config.name, score), jnp.uint32(0)])


def _time(now: Any) -> jax.Array:
    if np.shape(now) != (2,) or getattr(now, "dtype", None) != np.uint32:
        raise TypeError(
            "now must be the words of a time, uint32[2]: pass jde.now() to the jitted "
            "step as an argument, so that each call brings its own time."
        )
    most = np.array([2**32 - 1, MAX_CUSTOMIZED - 1], np.uint32)  # no bit of a mark
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


def _per_id(
    tables: Catalog[Any], ids: ByName, what: str, feature: str, numbers: Any
) -> jax.Array:
    """Returns uint32 in the shape of the ids, in range."""
    if feature not in ids:
        raise ValueError(
            f"{what} for '{feature}', but no ids for it. Features with ids: "
            f"{sorted(ids)}."
        )
    array: Any = numbers if isinstance(numbers, jax.Array) else np.asarray(numbers)
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"Feature '{feature}': {what} must be integers, not {array.dtype}."
        )
    expected = _shape(tables.config_of(feature), ids[feature])
    if array.shape != expected:
        raise ValueError(
            f"Feature '{feature}': {what} have shape {array.shape}, the ids "
            f"{expected}; give one number for each id."
        )
    if not isinstance(array, Tracer) and array.size:
        least, most = int(array.min()), int(array.max())
        if least < 0 or most > MAX_CUSTOMIZED:
            raise ValueError(
                f"Feature '{feature}': {what} are from {least} to {most}, but must be "
                "from 0 to 2**30 - 1, what a row has room for. Count in larger units."
            )
    if array.dtype.kind == "i":
        array = jnp.maximum(array, 0)
    return jnp.minimum(jnp.asarray(array), MAX_CUSTOMIZED).astype(jnp.uint32)


def _shape(config: TableConfig, ids: Any) -> tuple[int, ...]:
    """The shape of ids without the axis of their words."""
    values = ids.values if isinstance(ids, Jagged) else ids
    shape = np.shape(values)
    is_pairs = (
        config.key_dtype == "int64" and getattr(values, "dtype", None) == "uint32"
    )
    return shape[:-1] if is_pairs and shape[-1:] == (2,) else shape


def _filled(tables: Catalog[Any], ids: ByName, given: Given) -> Given:
    """Gives the other features of a customized table the score of the table.

    A kernel takes scores of all ids of such a table, or of none.
    """
    some = {tables.config_of(f).name for f in [*given.counts, *given.scores]}
    scores = dict(given.scores)
    for feature, each in ids.items():
        config = tables.config_of(feature)
        if config.name not in some or feature in scores:
            continue
        if config.score_strategy is ScoreStrategy.CUSTOMIZED:
            score, shape = given.tables[config.name][0], _shape(config, each)
            scores[feature] = jnp.broadcast_to(score, shape)
    return Given(given.tables, given.counts, scores)
