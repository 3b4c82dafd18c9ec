# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Begins to bring rows into frames, and waits for them behind other work.

docs/decisions/overlap.md says why XLA keeps the order and the arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.ops.call import Call
from jax_dynemb._src.ops.state import TableState
from jax_dynemb._src.ops.tiers import (
    Groups,
    Moves,
    States,
    in_calls,
    move_home,
    promoted,
    state_arrays,
    take_rows,
    tier_of,
)
from jax_dynemb._src.spec import TableSpec


def begin_promotion(
    tables: Sequence[TableSpec],
    states: States,
    slots: Groups,
    passed: Sequence[jax.Array],
) -> tuple[dict[str, TableState], dict[str, Moves], list[jax.Array]]:
    """Promotes to prefetch, and begins to move the records beside what comes next.

    Nothing may read or change the tables before ``end_promotion``, which takes what
    this returns in the same program.

    Args:
      tables: with tiers.
      states: of them.
      slots: int32[n] of each feature, by table.
      passed: arrays; what reads those that are returned comes after the begin.

    Returns:
      States, what moves by table, and the passed arrays.
    """
    new, moves, arrays = {}, {}, list(passed)
    for some in in_calls(tables):
        after, lists = promoted(some, states, slots, "prefetch")
        # A call that changes the homes comes first: were they not donated, XLA would
        # copy them for it, and the records go to the copy.
        after = move_home(some, after, {t.name: _nothing() for t in some})
        after, arrays = _swap("begin_swap", some, after, lists, arrays)
        after = _run_on_cpu(some, after, lists)
        new, moves = new | after, moves | lists
    return new, moves, arrays


def end_promotion(
    tables: Sequence[TableSpec],
    states: States,
    moves: Mapping[str, Moves],
    passed: Sequence[jax.Array],
) -> tuple[dict[str, TableState], list[jax.Array]]:
    """Waits for what ``begin_promotion`` began, after ``passed`` is there."""
    new, arrays = {}, list(passed)
    for some in in_calls(tables):
        after, arrays = _swap("end_swap", some, states, moves, arrays)
        new |= move_home(some, after, {table.name: _nothing() for table in some})
    return new, arrays


def _run_on_cpu(
    tables: Sequence[TableSpec], states: States, moves: Mapping[str, Moves]
) -> dict[str, TableState]:
    """Moves the records in a call beside which XLA's CPU client runs others.

    On a GPU nothing is to be done: begin and end know a stream for it.
    """
    own = {table.state_name: states[table.state_name] for table in tables}

    def with_rows(rows: Any) -> dict[str, TableState]:
        return {
            name: dataclasses.replace(own[name], values=values, optimizer=optimizer)
            for name, (values, optimizer) in rows.items()
        }

    def run(rows: Any) -> Any:
        after, _ = _swap("run_swap", tables, with_rows(rows), moves, ())
        return {name: (after[name].values, after[name].optimizer) for name in own}

    rows = {name: (each.values, each.optimizer) for name, each in own.items()}
    moved = jax.lax.platform_dependent(rows, cpu=run, default=lambda rows: rows)
    return {**states, **with_rows(moved)}


def _swap(
    op: str,
    tables: Sequence[TableSpec],
    states: States,
    moves: Mapping[str, Moves],
    passed: Sequence[jax.Array],
) -> tuple[dict[str, TableState], list[jax.Array]]:
    call = Call(op, tables, passed=np.int64(len(passed)))
    for table in tables:
        state, own = states[table.state_name], moves[table.name]
        call.update(state.values, *state_arrays(table, state))
        call.read(tier_of(state).homes)
        assert own.arriving is not None  # of a promotion
        call.operand(own.counts, *own.leaving, *own.arriving)
    call.update(*passed)
    results = call.run()
    new = {t.state_name: take_rows(results, t, states[t.state_name]) for t in tables}
    return {**states, **new}, [next(results) for _ in passed]


def _nothing() -> Moves:
    """Lists no rows."""
    none = jnp.zeros(0, jnp.int32)
    return Moves(jnp.zeros(2, jnp.int32), (none, none))
