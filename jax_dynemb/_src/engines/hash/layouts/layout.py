# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Where tables lie: which arrays of a state hold them, found by name.

A layout also runs a function on these arrays: ``OneDevice`` as it is, ``Placement``
once on each device of a mesh. So an operation is written once, as what one device does.
"""

from __future__ import annotations

import functools
from collections.abc import Collection

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.engines.hash.layouts.stacks import Stack
from jax_dynemb._src.ops import FeatureLayout
from jax_dynemb._src.table_sizes import MAX_SLOTS


class ByName:
    """Finds the arrays of tables.

    Attributes:
      stacks: all tables, as kernels see them.
    """

    stacks: tuple[Stack, ...]

    def stack(self, name: str) -> Stack:
        """Returns a stack by its name.

        Raises:
          ValueError: there is none.
        """
        if name not in self._by_name:
            raise ValueError(
                f"'{name}' is not a name of arrays in the state: "
                f"{sorted(self._by_name)}. Tables that share arrays are under "
                "coll.state_name(table)."
            )
        return self._by_name[name]

    def stack_of(self, table: str) -> Stack:
        """Finds the arrays that a table is part of."""
        return self._by_table[table]

    def stacks_of(self, tables: Collection[str]) -> list[Stack]:
        """Finds the arrays of some tables, in the order of a call."""
        return [s for s in self.stacks if any(t.name in tables for t in s.tables)]

    def stacks_in(self, state_name: str) -> list[Stack]:
        """Lists the stacks that lie in the same arrays, in their order there."""
        return [s for s in self.stacks if s.state_name == state_name]

    def my_block(self, stack: Stack) -> jax.Array:
        """Returns the block of a stack that this device holds."""
        del stack
        return jnp.int32(0)

    def owns_any(self, stack: Stack, tables: Collection[str]) -> jax.Array | np.bool_:
        """Tells whether this device holds rows of one of these tables."""
        flags = [t.name in tables for t in stack.tables]
        if all(flags):
            return np.bool_(True)
        idle = [False] * (stack.blocks - len(flags))
        return jnp.array(flags + idle)[self.my_block(stack)]

    def block_of(self, layout: FeatureLayout) -> int:
        """Returns the block that the table of a feature has in its stack."""
        return self._by_name[layout.table].block_of_feature(layout.feature)

    @functools.cached_property
    def _by_name(self) -> dict[str, Stack]:
        return {s.name: s for s in self.stacks}

    @functools.cached_property
    def _by_table(self) -> dict[str, Stack]:
        return {t.name: s for s in self.stacks for t in s.tables}

    def _check_slots(self) -> None:
        """Refuses tables whose slots on one device int32 cannot number."""
        for stack in self.stacks:
            if stack.local.local_slots > MAX_SLOTS:
                table = stack.tables[0]
                raise ValueError(
                    f"Table '{table.name}': capacity {table.capacity} needs more than "
                    "2**31 slots on one device; split the features over several "
                    "tables, or shard the table over a mesh (of more devices)"
                )
