# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A rule that selects rows of a table to remove: what a user writes, and checks."""

from __future__ import annotations

import datetime
from typing import Any, NoReturn, Self

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.config import ScoreStrategy, TableConfig
from jax_dynemb._src.engines.shard.policies import rule_arguments
from jax_dynemb._src.is_whole import is_whole

_COMBINE = ("all", "any")
_MICROSECOND = datetime.timedelta(microseconds=1)
# Numbers by their words: 64 bits travel as two, since JAX has no 64-bit integers.
_WORDS = {
    "unused_for": 2,
    "unused_since": 2,
    "count_below": 1,
    "score_below": 2,
    "keep_at_least": 1,
    "keep_at_most": 1,
}
COMPARISONS = ("unused_for", "unused_since", "count_below", "score_below", "norm_below")
NUMBERS = (*COMPARISONS, "keep_at_least", "keep_at_most")


@jax.tree_util.register_pytree_with_keys_class
class Rule:
    """Says which rows of a table ``Tables.erase_where`` removes.

    A rule is a pytree of numbers. A jitted function may take it as an argument, and
    other numbers compile nothing again. Fields that are None are not compared.

    Attributes:
      unused_for: rows that the latest lookups have not used: more than so many. For a
        table with score_strategy="timestamp" nanoseconds, or a ``timedelta``, before
        the latest lookup.
      unused_since: rows last used before this clock, as ``Tables.get_score`` and
        ``TimeMarks.before`` return it.
      count_below: rows of an LFU table with fewer uses.
      score_below: rows of a customized table with a lower score.
      norm_below: rows with a smaller Euclidean norm.
      combine: "all": rows for which every comparison holds; "any": for which one does.
      keep_at_least: rows that stay in any case, those with the highest scores.
      keep_at_most: rows that may stay. If more would, those with the lowest scores
        leave as well. Ties are broken by the hash of the key.

    Example:
      >>> rule = Rule(unused_for=1_000_000, keep_at_least=100_000)
    """

    combine: str
    is_time: bool
    unused_for: Any
    unused_since: Any
    count_below: Any
    score_below: Any
    norm_below: Any
    keep_at_least: Any
    keep_at_most: Any

    def __init__(
        self,
        unused_for: Any = None,
        unused_since: Any = None,
        count_below: Any = None,
        score_below: Any = None,
        norm_below: Any = None,
        combine: str = "all",
        keep_at_least: Any = 0,
        keep_at_most: Any = None,
    ):
        """Checks the numbers that are known.

        64-bit numbers may be traced as uint32[2], (low, high), and others as scalars.

        Args:
          unused_for: int, ``timedelta`` or uint32[2].
          unused_since: int or uint32[2].
          count_below: int or uint32[].
          score_below: int or uint32[].
          norm_below: float or float32[].
          combine: "all" or "any".
          keep_at_least: int or uint32[].
          keep_at_most: int or uint32[]; None: no bound.

        Raises:
          TypeError: something else than a number.
          ValueError: a number is out of range, or there is nothing to compare.
        """
        if combine not in _COMBINE:
            raise ValueError(f"combine must be one of {_COMBINE}, not {combine!r}")
        self.combine = combine
        self.is_time = isinstance(unused_for, datetime.timedelta)
        if isinstance(unused_for, datetime.timedelta):
            unused_for = unused_for // _MICROSECOND * 1000
        whole = {
            "unused_for": unused_for,
            "unused_since": unused_since,
            "count_below": count_below,
            "score_below": score_below,
            "keep_at_least": keep_at_least,
            "keep_at_most": keep_at_most,
        }
        if isinstance(keep_at_least, int) and keep_at_least == 0:
            whole["keep_at_least"] = None
        for name, given in whole.items():
            setattr(self, name, None if given is None else _whole(name, given))
        self.norm_below = None if norm_below is None else _real(norm_below)
        if not self.comparisons and self.keep_at_most is None:
            raise ValueError(
                "a Rule without a comparison removes nothing: give unused_for, "
                "unused_since, count_below, score_below or norm_below, or trim the "
                "table with keep_at_most."
            )
        self._check_bounds()

    @property
    def comparisons(self) -> tuple[str, ...]:
        """Names the fields that a row is compared with."""
        return tuple(n for n in COMPARISONS if getattr(self, n) is not None)

    @property
    def keeps(self) -> bool:
        """Whether a number of rows stays whatever the comparisons say."""
        return self.keep_at_least is not None or self.keep_at_most is not None

    @classmethod
    def from_policy(
        cls,
        policy: Any,
        *,
        table: int = 0,
        marks: Any = None,
        inference: bool = False,
        ranks: int = 1,
    ) -> Self | None:
        """Reads an eviction policy of another library, without its package.

        Known by their fields are FBGEMM's ``EvictionPolicy`` and TorchRec's policies
        of virtual tables: ``CountBased``, ``TimestampBased``, ``CountTimestampMixed``,
        ``FeatureL2NormBased``, ``FeatureScoreBased`` and ``NoEvictionPolicy``. So are
        DeepRec's ``GlobalStepEvict`` and ``L2WeightEvict``, for tables that count
        lookups, and the deletion of Paddle's ``CtrAccessorParam``, with ``marks``. The
        caller chooses when to remove rows, so triggers are not read. A ``decay_rate``
        is the factor of ``Tables.decay``, to be called before.

        Args:
          policy: the object, or a dict of its fields.
          table: which one, where FBGEMM has lists by table.
          marks: ``TimeMarks`` of a table that counts lookups; None: the table has
            score_strategy="timestamp".
          inference: whether to read TorchRec's ``inference_`` fields.
          ranks: processes of the peer's job, since its numbers of ids are for each.

        Returns:
          The rule; None if the policy removes nothing.

        Raises:
          TypeError: the object has none of the fields.
          ValueError: the policy needs a number that it does not have.
        """
        arguments = rule_arguments(policy, table, marks, inference, ranks)
        return None if arguments is None else cls(**arguments)

    def _check_bounds(self) -> None:
        least, most = self.keep_at_least, self.keep_at_most
        is_known = isinstance(least, np.ndarray) and isinstance(most, np.ndarray)
        if is_known and least > most:
            raise ValueError(
                f"keep_at_least={least} is more than keep_at_most={most}: a rule "
                "cannot keep both. Lower keep_at_least or raise keep_at_most."
            )

    def __repr__(self) -> str:
        """Shows the fields that are set."""
        set_ = {n: getattr(self, n) for n in NUMBERS if getattr(self, n) is not None}
        inner = ", ".join(f"{name}={_shown(x)}" for name, x in set_.items())
        return f"Rule({inner}, combine={self.combine!r})"

    def tree_flatten_with_keys(self) -> tuple[list[Any], tuple[str, bool]]:
        """Lists the numbers for JAX; None is no leaf."""
        key = jax.tree_util.GetAttrKey
        leaves = [(key(name), getattr(self, name)) for name in NUMBERS]
        return leaves, (self.combine, self.is_time)

    @classmethod
    def tree_unflatten(cls, how: tuple[str, bool], leaves: Any) -> Self:
        """Builds a rule from whatever JAX puts in place of the numbers."""
        rule = object.__new__(cls)
        rule.combine, rule.is_time = how
        for name, leaf in zip(NUMBERS, leaves, strict=True):
            setattr(rule, name, leaf)
        return rule


def _whole(name: str, given: Any) -> Any:
    """A whole number as uint32[2] or uint32[]."""
    words = _WORDS[name]
    if is_whole(given):
        limit = 1 << (32 * words)
        if not 0 <= given < limit:
            raise ValueError(f"{name}={given} is not in [0, 2**{32 * words})")
        if words == 1:
            return np.asarray(given, np.uint32)
        return np.array([given & 0xFFFFFFFF, given >> 32], np.uint32)
    dtype, shape = getattr(given, "dtype", None), getattr(given, "shape", None)
    if words == 2 and dtype == np.uint32 and shape == (2,):
        return given
    if shape == () and dtype is not None and np.dtype(dtype).kind in "iu":
        return _traced(given, words)
    form = "uint32[2], its low and its high word" if words == 2 else "a uint32 scalar"
    raise TypeError(
        f"{name} must be a whole number, or {form} where it is traced; not "
        f"{type(given).__name__} {given!r}."
    )


def _traced(given: Any, words: int) -> jax.Array:
    """A traced scalar; one below 0 counts as 0."""
    array = jnp.asarray(given)
    if array.dtype.kind == "i":
        array = jnp.maximum(array, 0)
    if array.dtype.itemsize == 8:  # where 64-bit types are switched on
        low, high = array & 0xFFFFFFFF, array >> 32
        if words == 2:
            return jnp.stack([low, high]).astype(jnp.uint32)
        array = jnp.where(high > 0, 0xFFFFFFFF, low)
    array = array.astype(jnp.uint32)
    return array if words == 1 else jnp.stack([array, jnp.zeros_like(array)])


def _real(given: Any) -> Any:
    if isinstance(given, (int, float, np.number)) and not isinstance(given, bool):
        if not given >= 0:
            raise ValueError(f"norm_below={given} must be 0 or more")
        with np.errstate(over="ignore"):  # beyond float32, all norms are smaller
            return np.asarray(given, np.float32)
    dtype, shape = getattr(given, "dtype", None), getattr(given, "shape", None)
    if shape == () and dtype is not None and jnp.issubdtype(dtype, jnp.floating):
        return jnp.asarray(given).astype(jnp.float32)
    raise TypeError(
        f"norm_below must be one float, not {type(given).__name__} {given!r}."
    )


def _shown(number: Any) -> Any:
    if isinstance(number, np.ndarray) and number.shape == (2,):
        return int(number[0]) | int(number[1]) << 32
    return number


def check_rule(table: TableConfig, rule: Rule) -> None:
    """Refuses comparisons that the scores of a table say nothing of.

    Raises:
      ValueError: with what to write instead.
    """
    strategy = ScoreStrategy(table.score_strategy)
    if rule.count_below is not None and strategy is not ScoreStrategy.LFU:
        _refuse(
            table,
            "count_below",
            "does not count uses",
            "Give it score_strategy='lfu', or use unused_for or unused_since.",
        )
    if rule.score_below is not None and strategy is not ScoreStrategy.CUSTOMIZED:
        instead = "count_below" if strategy is ScoreStrategy.LFU else "unused_since"
        _refuse(
            table,
            "score_below",
            "has no scores of its own",
            f"Use {instead}, or give it score_strategy='customized'.",
        )
    if rule.is_time and strategy is not ScoreStrategy.TIMESTAMP:
        _refuse(
            table,
            "a timedelta",
            "counts lookups",
            "Use unused_since=marks.before(hours=...) of jde.lifecycle.TimeMarks, or "
            "give it score_strategy='timestamp'.",
        )


def _refuse(table: TableConfig, field: str, reason: str, fix: str) -> NoReturn:
    strategy = ScoreStrategy(table.score_strategy).value
    raise ValueError(
        f"Table '{table.name}': {field} cannot be compared, since a table with "
        f"score_strategy='{strategy}' {reason}. {fix}"
    )
