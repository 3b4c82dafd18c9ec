# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A prefetch that goes on while the dense part of a model computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import jax
from jax.core import Tracer

from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.hash import HashEngine
from jax_dynemb._src.ops import Moves

T = TypeVar("T")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Begun:
    """Holds what moves between the begin and the end of a prefetch.

    Attributes:
      engine: of the tables; static.
      moves: by table; none where no table has a tier.
    """

    engine: HashEngine = dataclasses.field(metadata={"static": True})
    moves: Mapping[str, Moves]

    def end(self, state: States, d_rows: T) -> tuple[States, T]:
        """Waits for the rows, behind what computes ``d_rows``: any pytree of arrays."""
        leaves, tree = jax.tree.flatten(d_rows)
        state, leaves = self.engine.end_prefetch(state, self.moves, leaves)
        return state, jax.tree.unflatten(tree, leaves)


def begin_prefetch(
    engine: HashEngine, state: States, ids: Mapping[str, Any], rows: T
) -> tuple[Begun | None, States, T]:
    """Begins a prefetch beside what reads the rows; None: it has ended already.

    Outside of jit the two calls would be programs of their own, between which arrays
    may be freed. There all rows come before the dense part.
    """
    if not is_traced(state):
        return None, engine.prefetch(state, ids), rows
    leaves, tree = jax.tree.flatten(rows)
    state, moves, leaves = engine.begin_prefetch(state, ids, leaves)
    return Begun(engine, moves), state, jax.tree.unflatten(tree, leaves)


def is_traced(state: States) -> bool:
    """Whether code that changes the state is being compiled."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(state))
