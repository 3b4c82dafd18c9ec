# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Where tables live: a mesh, its axes, and how a function runs once a shard."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
)

from jax_dynemb.config import MAX_SLOTS, TableConfig
from jax_dynemb.ops._state import TableState

if TYPE_CHECKING:
    from jax_dynemb.table._tables import Tables

_WIRE_DTYPES = (None, "float32", "bfloat16", "float16")


@dataclasses.dataclass(frozen=True)
class Placement:
    """The mesh of a collection and how its exchanges are made.

    Attributes:
      given_mesh: the devices; None: those of the shard_map that the code runs in.
      axes: axes of the mesh that rows and batches are split over; tables are
        replicated over the others.
      exchange_factor: places for ids in an exchange, as a multiple of an equal share
        of the batch.
      exchange_dtype: of rows and gradients on the wire; None: as exact as the rows.
    """

    given_mesh: Mesh | None
    axes: tuple[str, ...]
    exchange_factor: float
    exchange_dtype: str | None

    @property
    def mesh(self) -> Mesh | AbstractMesh:
        """The devices."""
        if self.given_mesh is not None:
            return self.given_mesh
        if not self.is_inside():
            raise ValueError(
                f"Tables with axis_name={self.axes} know their devices inside a "
                "jax.shard_map over these axes only. For what runs outside of it, "
                "make jde.Tables(tables, mesh=..., axis=...): the state is the same."
            )
        return jax.sharding.get_abstract_mesh()

    @property
    def shards(self) -> int:
        """Parts that row-wise tables are cut into."""
        return math.prod(self.mesh.shape[axis] for axis in self.axes)

    @property
    def split(self) -> PartitionSpec:
        """The first axis over all shards."""
        return PartitionSpec(self.axes)

    def local(self, table: TableConfig) -> TableConfig:
        """The config as a shard sees it."""
        shards = self.shards if table.sharding == "row_wise" else 1
        check_shards(table, shards)
        return dataclasses.replace(table, shards=shards)

    def state_spec(self, table: TableConfig) -> TableState:
        """A PartitionSpec for each array of a table."""
        rows = self.split if table.sharding == "row_wise" else PartitionSpec()
        extra = getattr(table.optimizer, "extra", None)
        leaves = () if extra is None else jax.eval_shape(lambda: extra(table.dim))
        return TableState(
            index=rows,  # pyright: ignore[reportArgumentType]
            values=rows,  # pyright: ignore[reportArgumentType]
            optimizer=dict.fromkeys(table.states, rows),  # pyright: ignore[reportArgumentType]
            counters=rows,  # pyright: ignore[reportArgumentType]
            extra=tuple(PartitionSpec() for _ in leaves),
        )

    def state_sharding(self, table: TableConfig) -> TableState:
        """A NamedSharding for each array of a table."""
        return jax.tree.map(
            lambda spec: NamedSharding(self.mesh, spec), self.state_spec(table)
        )

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
        """The function run once a shard; itself where it already runs there."""
        if self.is_inside():
            return function
        run = jax.shard_map(
            function,
            mesh=self.mesh,
            in_specs=in_specs,
            out_specs=out_specs,
            check_vma=False,
        )
        if AxisType.Explicit not in self.mesh.axis_types:
            return run

        def resharded(*args):
            # An explicit axis is not moved without being asked to.
            return run(*self.put(args, in_specs))

        return resharded

    def put(self, tree: Any, specs: Any) -> Any:
        """Moves arrays to their shardings; only explicit axes need it."""

        def one(spec, part):
            sharding = NamedSharding(self.mesh, spec)
            return jax.tree.map(lambda x: jax.reshard(jnp.asarray(x), sharding), part)

        return jax.tree.map(
            one, specs, tree, is_leaf=lambda x: isinstance(x, PartitionSpec)
        )


def placement_of(tables: Tables) -> Placement:
    """The placement of a collection on a mesh."""
    assert tables.placement is not None
    return tables.placement


def make_placement(
    mesh: Mesh | None,
    axis: str | tuple[str, ...] | None,
    exchange_factor: float,
    exchange_dtype: Any,
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
    return Placement(mesh, axes, float(exchange_factor), dtype)


def check_shards(table: TableConfig, shards: int) -> None:
    """Refuses a table that cannot be cut into so many equal parts."""
    if table.max_shards % shards:
        raise ValueError(
            f"Table '{table.name}' has {table.num_buckets} buckets, which {shards} "
            "devices cannot share equally. Use a capacity of "
            f"{_next_capacity(table, shards)} rows, sharding='replicated' for a small "
            "table, or a mesh axis whose size is a power of two up to 64."
        )
    if table.num_slots // shards > MAX_SLOTS:
        raise ValueError(
            f"Table '{table.name}': capacity {table.capacity} needs more than 2**31 "
            "slots on one device; split the features over several tables, or shard "
            "the table over a mesh (of more devices)"
        )


def _next_capacity(table: TableConfig, shards: int) -> int:
    needed = 1 << (shards - 1).bit_length()
    buckets = -(-table.num_buckets // needed) * needed
    return buckets * (table.num_slots // table.num_buckets)
