# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Where tables live: a mesh, its axes, and how a function runs once a shard."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
)

from jax_dynemb._spec import TableSpec
from jax_dynemb._table_sizes import MAX_SLOTS
from jax_dynemb.config import TableConfig
from jax_dynemb.engines.mesh._programs import program
from jax_dynemb.engines.mesh._stacks import Stack, make_stacks, same_stacks
from jax_dynemb.ops import FeatureLayout, Ring, TableState, TierState
from jax_dynemb.optim.interface import check_columns

_POOLED = ("auto", "rows", "sums")
_WIRE_DTYPES = (None, "float32", "bfloat16", "float16")


@dataclasses.dataclass(frozen=True)
class Placement:
    """Holds the mesh of a collection and the options of its exchanges.

    Attributes:
      mesh: the devices; None: those of the shard_map that the code will run in.
      axes: axes of the mesh that rows and batches are split over; tables are
        replicated over the others.
      exchange_factor: places for ids in an exchange, as a multiple of an equal share
        of the batch.
      exchange_dtype: of rows and gradients on the wire; None: as exact as the rows.
      exchange_pooled: what travels for pooled features, "rows", "sums" or "auto".
      stacks: the arrays of all tables.
    """

    mesh: Mesh | AbstractMesh | None
    axes: tuple[str, ...]
    exchange_factor: float
    exchange_dtype: str | None
    exchange_pooled: str = "auto"
    stacks: tuple[Stack, ...] = dataclasses.field(default=(), hash=False)

    @property
    def shards(self) -> int:
        """Counts the parts that row-wise tables are cut into."""
        if self.mesh is None:
            return 1  # not known yet; names and specs do not depend on it
        return math.prod(self.mesh.shape[axis] for axis in self.axes)

    @property
    def devices(self) -> int:
        """Counts the devices of the mesh, replicas included."""
        return 1 if self.mesh is None else self.mesh.size

    @property
    def split(self) -> PartitionSpec:
        """Splits the first axis over all shards."""
        return PartitionSpec(self.axes)

    def with_tables(
        self,
        tables: Sequence[TableConfig],
        planned: Mapping[str, Sequence[int]] | None = None,
    ) -> Placement:
        """Places these tables; those of equal names stay where they were.

        Args:
          tables: the tables of a collection.
          planned: by table-wise table, the shards that a plan gives it.
        """
        check_tables(self.shards, tables)
        if self.mesh is None:
            _check_not_table_wise(tables)
        stacks = same_stacks(self.stacks, tables)
        if stacks is None:
            stacks = make_stacks(tables, self.shards, planned)
        if self.mesh is not None:
            check_slots(stacks)
        return dataclasses.replace(self, stacks=stacks)

    def here(self) -> Placement:
        """Takes the mesh of the shard_map that the code runs in, if there was none."""
        if self.mesh is not None:
            return self
        if not self.is_inside():
            raise ValueError(
                f"Tables with axis_name={self.axes} know their devices inside a "
                "jax.shard_map over these axes only. For what runs outside of it, "
                "make jde.Tables(tables, mesh=..., axis=...): the state is the same."
            )
        there = dataclasses.replace(
            self, mesh=jax.sharding.get_abstract_mesh(), stacks=()
        )
        return there.with_tables([t for stack in self.stacks for t in stack.tables])

    def stack(self, name: str) -> Stack:
        """Returns a stack by its name in the state.

        Raises:
          ValueError: the state has no such arrays.
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
        """Finds the arrays of some tables."""
        return [s for s in self.stacks if any(t.name in tables for t in s.tables)]

    def block_of(self, layout: FeatureLayout) -> int:
        """Returns the block that the table of a feature has in its stack."""
        return self._by_name[layout.table].block_of_feature(layout.feature)

    def my_block(self, stack: Stack) -> jax.Array:
        """Returns the block that this shard holds; inside shard_map."""
        return jax.lax.axis_index(self.axes) // stack.width

    @functools.cached_property
    def _by_name(self) -> dict[str, Stack]:
        return {s.name: s for s in self.stacks}

    @functools.cached_property
    def _by_table(self) -> dict[str, Stack]:
        return {t.name: s for s in self.stacks for t in s.tables}

    def state_spec(self, stack: Stack) -> TableState:
        """Returns a PartitionSpec for each array of a stack."""
        table = stack.local
        rows = PartitionSpec() if stack.sharding == "replicated" else self.split
        leaves = jax.eval_shape(lambda: table.optimizer.extra(table.dim))
        return TableState(
            index=rows,  # pyright: ignore[reportArgumentType]
            values=rows,  # pyright: ignore[reportArgumentType]
            optimizer=dict.fromkeys(table.states, rows),  # pyright: ignore[reportArgumentType]
            counters=rows,  # pyright: ignore[reportArgumentType]
            extra=tuple(PartitionSpec() for _ in leaves),
            sketch=rows if table.sketch_words else None,  # pyright: ignore[reportArgumentType]
            removed=rows if table.ring_size else None,  # pyright: ignore[reportArgumentType]
            tier=_tier_spec(table, rows),
            name=stack.name,
        )

    def state_specs(self, stacks: Sequence[Stack]) -> dict[str, TableState]:
        """Returns the specs of some arrays of the state."""
        return {s.name: self.state_spec(s) for s in stacks}

    def slot_specs(self, stacks: Sequence[Stack]) -> dict[str, PartitionSpec]:
        """Returns the specs of one number, or one row, for each slot in a list."""
        return {
            s.name: PartitionSpec() if s.sharding == "replicated" else self.split
            for s in stacks
        }

    def is_inside(self) -> bool:
        """Whether the running code is inside a shard_map over these axes."""
        manual = set(jax.sharding.get_abstract_mesh().manual_axes)
        inside = manual & set(self.axes)
        if inside and inside != set(self.axes):
            raise ValueError(
                f"The tables are split over the mesh axes {self.axes}, but this "
                f"shard_map is over {sorted(manual)} only: give it all of them, or "
                "call the tables outside of it."
            )
        return bool(inside)

    def mapped(self, function: Callable[..., Any], in_specs: Any, out_specs: Any):
        """Returns the function run once a shard; itself where it already runs there.

        Outside of jit, equal calls share one compiled program: see ``program``. So the
        function must not capture arrays.
        """
        if self.is_inside():
            return function
        assert self.mesh is not None  # see here()
        run = program(function, self.mesh, in_specs, out_specs)
        if not self.is_explicit:
            return run

        def resharded(*args):
            # An explicit axis is not moved without being asked to.
            return run(*self.put(args, in_specs))

        return resharded

    @property
    def spans_processes(self) -> bool:
        """Whether processes of a job may have parts of one state."""
        if isinstance(self.mesh, jax.sharding.Mesh):
            return bool(self.mesh.is_multi_process)
        return jax.process_count() > 1  # a shard_map's mesh does not say it

    @property
    def is_explicit(self) -> bool:
        """Whether arrays have their sharding as part of their type."""
        return self.mesh is not None and AxisType.Explicit in self.mesh.axis_types

    def gathered(self, array: jax.Array) -> jax.Array:
        """Returns the array, ready to be cut or padded where shards do not end.

        An explicit axis must divide what it splits, so there the array is copied to
        all devices first. Elsewhere XLA moves what has to move.
        """
        if not self.is_explicit or self.is_inside():
            return array
        assert self.mesh is not None
        return jax.reshard(array, NamedSharding(self.mesh, PartitionSpec()))

    def put(self, tree: Any, specs: Any) -> Any:
        """Moves arrays to their shardings; only explicit axes need it."""
        mesh = self.mesh
        assert mesh is not None

        def one(spec, part):
            sharding = NamedSharding(mesh, spec)
            return jax.tree.map(lambda x: jax.reshard(jnp.asarray(x), sharding), part)

        return jax.tree.map(
            one, specs, tree, is_leaf=lambda x: isinstance(x, PartitionSpec)
        )


def make_placement(
    mesh: Mesh | None,
    axis: str | tuple[str, ...] | None,
    exchange_factor: float,
    exchange_dtype: Any,
    exchange_pooled: str,
) -> Placement:
    """Checks what was given to ``Tables``; without a mesh ``axis`` is ``axis_name``."""
    axes = mesh.axis_names if mesh is not None and axis is None else axis or ()
    axes = (axes,) if isinstance(axes, str) else tuple(axes)
    if mesh is None and not axes:
        raise ValueError(f"axis_name={axis!r}: name the axes of your jax.shard_map")
    if mesh is not None and (set(axes) - set(mesh.axis_names) or not axes):
        raise ValueError(
            f"axis={axis!r}: the mesh has the axes {mesh.axis_names}; name one of "
            "them, or a tuple of some, or leave axis out for all."
        )
    if not exchange_factor > 0:
        raise ValueError(f"exchange_factor must be above 0, not {exchange_factor!r}")
    dtype = None if exchange_dtype is None else jnp.dtype(exchange_dtype).name
    if dtype not in _WIRE_DTYPES:
        raise ValueError(
            f"exchange_dtype must be one of {_WIRE_DTYPES}, not {exchange_dtype!r}"
        )
    if exchange_pooled not in _POOLED:
        raise ValueError(
            f"exchange_pooled must be one of {_POOLED}, not {exchange_pooled!r}"
        )
    return Placement(mesh, axes, float(exchange_factor), dtype, exchange_pooled)


def check_tables(shards: int, tables: Sequence[TableConfig]) -> None:
    """Refuses a table that the devices cannot share."""
    for table in tables:
        if table.optimizer.decays_lookups:
            raise ValueError(
                f"Table '{table.name}' has catch_up_forward=True, which one device "
                "has but no mesh. Leave it out: a row then decays in its next update, "
                "and a lookup before that reads it as it is stored."
            )
        if table.sharding == "column_wise":
            _check_columns(table, shards)


def check_slots(stacks: Sequence[Stack]) -> None:
    """Refuses tables whose slots on one shard int32 cannot number."""
    for stack in stacks:
        if stack.local.local_slots > MAX_SLOTS:
            table = stack.tables[0]
            raise ValueError(
                f"Table '{table.name}': capacity {table.capacity} needs more than "
                "2**31 slots on one device; split the features over several tables, "
                "or shard the table over a mesh (of more devices)"
            )


def _check_not_table_wise(tables: Sequence[TableConfig]) -> None:
    for table in tables:
        if table.sharding == "table_wise":
            raise ValueError(
                f"Table '{table.name}' is table-wise: where it lies depends on the "
                "number of devices. Give jde.Tables mesh=... and axis=... instead of "
                "axis_name=...; inside a shard_map they work too."
            )


def _check_columns(table: TableConfig, shards: int) -> None:
    if table.dim % (4 * shards):
        raise ValueError(
            f"Table '{table.name}' has {table.dim} columns, which {shards} devices "
            f"cannot share column-wise in parts of a multiple of 4. Use a dim that is "
            f"a multiple of {4 * shards}, or sharding='row_wise'."
        )
    check_columns(table.name, table.optimizer)


def _tier_spec(table: TableSpec, rows: Any) -> TierState | None:
    if table.tier is None:
        return None
    below = table.ring_rows > 0
    return TierState(
        place=rows,
        owners=rows,
        homes=rows,
        counters=rows,
        held=rows if below else None,
        departed=Ring(rows, rows) if below else None,
    )
