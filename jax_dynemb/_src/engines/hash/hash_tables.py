# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the hash tables of a collection together with where they lie."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines.catalog import Catalog
from jax_dynemb._src.engines.hash.layouts import Layout, Stack
from jax_dynemb._src.ops import TableState

States = dict[str, TableState]


@dataclasses.dataclass(frozen=True)
class HashTables:
    """Holds the tables, and where their arrays are.

    Attributes:
      catalog: the tables by name.
      layout: one device or a mesh, and the arrays that hold the tables.
    """

    catalog: Catalog[TableConfig]
    layout: Layout


def select_member(
    layout: Layout, stack: Stack, by_table: Mapping[str, jax.Array]
) -> jax.Array:
    """Selects the number of the table that this device has, of those in a stack."""
    numbers = [by_table[t.name] for t in stack.tables]
    if len(numbers) == 1:
        return numbers[0]
    numbers += numbers[:1] * (stack.blocks - len(numbers))
    return jnp.stack(numbers)[layout.my_block(stack)]


def restore_untouched(
    layout: Layout,
    stacks: Sequence[Stack],
    tables: Collection[str],
    before: Mapping[str, TableState],
    after: Mapping[str, TableState],
) -> States:
    """Restores the counters of tables that a call did not touch.

    It ran on every shard, with nothing but padding on those that hold other tables of
    the same arrays: what those count (lookups, steps, a clock) stays as it was.
    """
    result = dict(after)
    for stack in stacks:
        if len(stack.tables) == 1:
            continue
        here = layout.owns_any(stack, tables)
        if isinstance(here, np.bool_):
            continue
        name = stack.state_name
        old, new = before[name], after[name]
        counters = jnp.where(here, new.counters, old.counters)
        result[name] = dataclasses.replace(new, counters=counters)
    return result
