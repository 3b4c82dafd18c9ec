# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers of tables that share arrays, as each shard sees its own; inside shard_map."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb.engines.mesh._placement import Placement
from jax_dynemb.engines.mesh._stacks import Stack
from jax_dynemb.engines.shard import check_hyper, step_of
from jax_dynemb.ops import TableState
from jax_dynemb.optim.interface import NoUpdate

States = Mapping[str, TableState]


def owns_any(
    placement: Placement, stack: Stack, tables: Collection[str]
) -> jax.Array | np.bool_:
    """Whether this shard holds rows of one of these tables."""
    flags = [t.name in tables for t in stack.tables]
    if all(flags):
        return np.bool_(True)
    idle = [False] * (stack.blocks - len(flags))
    return jnp.array(flags + idle)[placement.my_block(stack)]


def select_member(
    placement: Placement, stack: Stack, by_table: Mapping[str, jax.Array]
) -> jax.Array:
    """Selects the number of the table that this shard has."""
    numbers = [by_table[t.name] for t in stack.tables]
    if len(numbers) == 1:
        return numbers[0]
    numbers += numbers[:1] * (stack.blocks - len(numbers))
    return jnp.stack(numbers)[placement.my_block(stack)]


def select_hyper(
    placement: Placement,
    stack: Stack,
    states: States,
    given: Mapping[str, Mapping[str, jax.Array]],
) -> dict[str, jax.Array]:
    """Selects the hyper-parameters of the table that this shard has, by name."""
    if isinstance(stack.local.optimizer, NoUpdate):
        return {}
    by_table = {t.name: dict(given.get(t.name, {})) for t in stack.tables}
    for table in stack.tables:
        if table.optimizer.kind:
            check_hyper(table, by_table[table.name])
    names = {name for numbers in by_table.values() for name in numbers}
    if len(stack.tables) > 1 and names:
        step = step_of(states[stack.name])
        for table in stack.tables:  # one has its own where the others are given
            own = table.optimizer.hyper_parameters(step)
            own = {n: jnp.asarray(own[n], jnp.float32) for n in names & own.keys()}
            by_table[table.name] = own | by_table[table.name]
    return {
        name: select_member(placement, stack, {t: x[name] for t, x in by_table.items()})
        for name in sorted(names)
    }


def restore_untouched(
    placement: Placement,
    stacks: Sequence[Stack],
    tables: Collection[str],
    before: States,
    after: States,
) -> dict[str, TableState]:
    """Restores the counters of tables that a call did not touch.

    It ran on every shard, with nothing but padding on those that hold other tables of
    the same arrays: what those count (lookups, steps, a clock) stays as it was.
    """
    result = dict(after)
    for stack in stacks:
        here = owns_any(placement, stack, tables)
        if isinstance(here, np.bool_):
            continue
        old, new = before[stack.name], after[stack.name]
        counters = jnp.where(here, new.counters, old.counters)
        result[stack.name] = dataclasses.replace(new, counters=counters)
    return result
