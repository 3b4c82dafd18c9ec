# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables: a collection of embedding tables as pure functions of explicit state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jax.sharding import Mesh

from jax_dynemb import _ffi
from jax_dynemb._seed import seed_words
from jax_dynemb.config import TableConfig
from jax_dynemb.ops._stamps import new_stamp
from jax_dynemb.ops._state import TableState
from jax_dynemb.sharding import _collection as _on_mesh
from jax_dynemb.sharding._placement import make_placement, placement_of
from jax_dynemb.sharding._plan import Plan, make_plan
from jax_dynemb.table import _blocks, _given, _grow
from jax_dynemb.table._contents import Contents
from jax_dynemb.table._declared import States as States
from jax_dynemb.table._steps import Steps


class Tables(Steps, Contents):
    """Embedding tables that share their calls. Static and hashable; holds no arrays.

    Every function takes the state and returns it, and none changes its argument, so
    all of them work inside ``jax.jit``, ``jax.lax.scan`` and ``jax.lax.cond``. Donate
    the state at the outermost ``jit``: then a table is changed in place; otherwise it
    is copied.

    Attributes:
      tables: configs by table name.
      features: table names by feature name.
      placement: the mesh and how tables lie on it; None on one device.
      share_arrays: whether tables of one width share arrays on one device.
    """

    def __init__(
        self,
        tables: Iterable[TableConfig],
        mesh: Mesh | None = None,
        axis: str | tuple[str, ...] | None = None,
        *,
        axis_name: str | tuple[str, ...] | None = None,
        exchange_factor: float = 0.5,
        exchange_dtype: Any = None,
        exchange_pooled: str = "auto",
        share_arrays: bool = False,
    ):
        """Checks that names are unique, and that the devices can share the tables.

        With a mesh every function takes and returns whole batches and whole tables,
        as on one device; the arrays are split over the mesh. Inside a ``shard_map``
        over the same axes each device gives its own ids and gets its own rows.

        Args:
          tables: one config a table.
          mesh: the devices to shard over; None for the default device.
          axis: the axis of the mesh to split rows and batches over, or a tuple of
            axes; all axes if None.
          axis_name: instead of ``mesh`` and ``axis``, for tables that are used inside
            a ``shard_map`` over these axes only, whatever its mesh is. There
            ``init`` makes the part of each device.
          exchange_factor: room for ids in an exchange between two devices, as a
            multiple of an equal share of a device's batch. What does not fit takes
            further rounds; see ``exchange_peak`` in ``stats``. With 0.5 a batch
            without duplicates takes two, and moves no more than with 1.
          exchange_dtype: of rows and gradients between devices, e.g. "bfloat16";
            None: no rounding.
          exchange_pooled: what travels between devices for pooled features: the
            distinct "rows" of a device, or "sums", one a bag from each device. "auto"
            takes what moves fewer bytes in the batches of a call; see ``plan``.
          share_arrays: on one device, puts tables of one dim, param_dtype and kind of
            optimizer state one after the other in the same arrays, as TorchRec puts
            them in one table-batched embedding. Results are the same, but a step of
            many tables costs the host less, since jit pays for each array that goes
            in and out. The state has the arrays under ``state_name(table)``.

        Raises:
          TypeError: something else than a list of configs.
          ValueError: a table or feature name occurs twice, or the mesh does not suit.
        """
        configs = _given.configs_of(tables)
        _given.check_mesh(mesh)
        if mesh is None and axis is not None:
            raise ValueError(
                f"axis={axis!r} names an axis of a mesh, so mesh=... is needed too; "
                "inside your own shard_map write axis_name=... instead of both."
            )
        if mesh is not None and axis_name is not None:
            raise ValueError(
                f"axis_name={axis_name!r} takes the place of mesh= and axis=; with a "
                "mesh, which works inside a shard_map too, write axis=..."
            )
        if share_arrays and (mesh is not None or axis_name is not None):
            raise ValueError(
                "share_arrays=True is for one device. On a mesh tables of one shape "
                "share arrays if their TableConfig has sharding='table_wise'."
            )
        placement = None
        if mesh is not None or axis_name is not None:
            axes = axis if axis_name is None else axis_name
            placement = make_placement(
                mesh, axes, exchange_factor, exchange_dtype, exchange_pooled
            )
        self._take(configs, placement, share_arrays)

    def init(self, seed: Any = 0) -> States:
        """Empty tables on the default device, or each shard on its own device.

        Args:
          seed: an int, or a uint32 scalar. Rows are a function of (seed, table name,
            key, column).

        Returns:
          States by table name; see ``state_name``.
        """
        _ffi.check_platform()
        if self.placement is not None:
            return _on_mesh.init(self, seed_words(seed))
        placed = tuple(self._placed.values())
        return _blocks.init(placed, seed_words(seed), new_stamp())

    def plan(self, ids: Mapping[str, int] | None = None) -> Plan:
        """Where the tables lie and what a step exchanges; print it.

        Args:
          ids: by feature, how many ids of a batch each device has, padding included;
            without it the exchange is left at 0.
            How many bags they are is what the tables' ``pooling_factors`` say.

        Example:
          >>> print(coll.plan({"user": 8192, "item": 8192}))  # doctest: +SKIP
        """
        for feature in ids or {}:
            self.config_of(feature)
        placement = self.placement and placement_of(self)
        return make_plan(placement, self._key[0], ids or {})

    def partition_specs(self) -> dict[str, TableState]:
        """A ``PartitionSpec`` for each array of the state, for your own shard_map.

        Raises:
          ValueError: the tables are not on a mesh.
        """
        if self.placement is None:
            raise ValueError(
                "these Tables have no mesh; give jde.Tables mesh=... or axis_name=..."
            )
        return {s.name: self.placement.state_spec(s) for s in self.placement.stacks}

    def clear(self, state: States) -> States:
        """The tables without rows; counters start again, seeds stay.

        Args:
          state: the tables.
        """
        if self.placement is not None:
            return _on_mesh.clear(self, state)
        return _blocks.clear(self._placed.values(), state)

    def grow(
        self, state: States, capacities: Mapping[str, int]
    ) -> tuple[Tables, States]:
        """Makes room in some tables; every row, score and optimizer state stays.

        A table gets a whole multiple of its buckets, the fewest that hold the new
        capacity, so nothing moves between devices. Old and new arrays of a table are
        in memory together. Table-wise tables that share arrays grow together.

        Update before you grow: a residual from before does not fit the new tables. Not
        for use inside jit, whose programs know the capacity: compile the step again
        with the new ``Tables``.

        Args:
          state: the tables; unchanged.
          capacities: by table, how many rows there shall be room for.

        Returns:
          ``Tables`` with the new capacities, and their state.

        Raises:
          ValueError: a table is that large already, or its name is unknown.

        Example:
          >>> if coll.stats(state)["cat/load_factor"] > 0.75:  # doctest: +SKIP
          ...     coll, state = coll.grow(state, {"cat": 4_000_000})
        """
        _given.check_values(state, "grow")
        for name in capacities:
            self._table(name)
        return _grow.grow(self, state, capacities)
