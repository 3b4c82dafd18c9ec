# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Counts, by feature, what became of the ids of one training lookup."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import LookupEngine, States
from jax_dynemb._src.ops import Residual, as_words, is_padding, is_reserved, prepare

Counts = dict[str, Int32[Array, ""]]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CountedResidual:
    """Holds a residual together with the counts of its lookup: a pytree.

    Attributes:
      residual: for ``apply_gradients``, which takes this object too.
      counts: by feature and name, int32[]; see ``Tables.feature_stats``.
    """

    residual: Any
    counts: dict[str, Counts]


def counted_lookup(
    engine: LookupEngine,
    state: States,
    ids: Mapping[str, Any],
    inserts: bool,
    lookup: tuple[Any, ...],
) -> tuple[Any, CountedResidual, States]:
    """Looks up, and counts by feature what became of the ids.

    Which ids have a row is read before the lookup; the kernels of the lookup need no
    bit for it. On one device the residual says what became of the others. Elsewhere its
    slots stay with the owners, so rows are looked for again. ``inserts`` says whether
    the lookup may insert rows at all, and ``lookup`` is what it takes behind the state.
    """
    _, before, state = engine.find(state, ids, {})
    rows, residual, state = engine.lookup(state, *lookup)
    # On one device the residual has the slots of all ids.
    is_alone = isinstance(residual, Residual) and not residual.kept
    alone = residual.features if is_alone else {}
    after = before
    if not alone:
        _, after, state = engine.find(state, ids, {})
    counts = OrderedDict()
    for name, given in ids.items():
        config = engine.catalog.config_of(name)
        outcome = _Outcome.of(config, name, given, before[name])
        if name in alone:
            counts[name] = outcome.by_slots(alone[name].slots)
        else:
            counts[name] = outcome.by_rows(after[name], _keeps_out(config, inserts))
    return rows, CountedResidual(residual, counts), state


def plain_residual(residual: Any) -> Any:
    """Returns what engines take: a residual, or a list of them, without counts."""
    if isinstance(residual, CountedResidual):
        return residual.residual
    if isinstance(residual, (list, tuple)) and not hasattr(residual, "_fields"):
        return [plain_residual(each) for each in residual]
    return residual


def counts_of(residual: Any) -> dict[str, Counts]:
    """Returns the counts of a lookup, see ``Tables.feature_stats``."""
    if isinstance(residual, CountedResidual):
        return residual.counts
    if isinstance(residual, Residual):
        raise ValueError(
            "this residual has no counts: call lookup(..., stats=True), and pass the "
            "residual that it returns."
        )
    raise TypeError(
        f"feature_stats takes the residual of lookup(..., stats=True), not "
        f"{type(residual).__name__}"
    )


@dataclasses.dataclass(frozen=True)
class _Outcome:
    """Holds the ids of a feature, flat, as far as they are known before a lookup.

    Attributes:
      padding: which positions have no id.
      hits: which ids had a row.
      reserved: which ids never get one.
    """

    padding: Bool[Array, " ids"]
    hits: Bool[Array, " ids"]
    reserved: Bool[Array, " ids"]

    @classmethod
    def of(cls, config: Any, name: str, ids: Any, found: jax.Array) -> _Outcome:
        _, given = prepare(config, name, ids)
        words = as_words(given.ids)
        if words.shape[0] >= 2**31:  # only the devices of a mesh have room for them
            raise ValueError(
                f"feature_stats counts ids in int32, but feature '{name}' has "
                f"{words.shape[0]} in one batch: leave out stats=True."
            )
        padding = is_padding(words)
        hits = jnp.zeros(padding.shape, bool)
        if found.size:  # bags without ids have become padding
            hits = found.reshape(-1)
        return cls(padding, hits & ~padding, is_reserved(words))

    def by_slots(self, slots: Int32[Array, " ids"]) -> Counts:
        """The counts, from what the lookup said of each id."""
        new = (slots >= 0) & ~self.hits
        codes = _ffi.constants()
        refused = slots == codes["refused_slot"]
        return self._counts(new, refused, slots == codes["not_admitted_slot"])

    def by_rows(self, found: jax.Array, keeps_out: bool) -> Counts:
        """The counts, from which ids have a row after the lookup."""
        stored = found.reshape(-1) if found.size else self.hits
        without = ~stored & ~self.hits & ~self.padding
        refused = without & self.reserved if keeps_out else without
        return self._counts(stored & ~self.hits, refused, without & ~refused)

    def _counts(self, new: jax.Array, refused: jax.Array, out: jax.Array) -> Counts:
        masks = {
            "ids": ~self.padding,
            "padding": self.padding,
            "hits": self.hits,
            "inserted": new,
            "refused": refused,
            "not_admitted": out,
        }
        return {name: jnp.sum(x, dtype=jnp.int32) for name, x in masks.items()}


def _keeps_out(config: Any, inserts: bool) -> bool:
    """Whether ids without a row were kept out by a rule or a flag."""
    if not isinstance(config, TableConfig):
        return False
    return config.admission is not None or not (inserts and config.insert)
