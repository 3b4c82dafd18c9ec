# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables: a collection of embedding tables as pure functions of explicit state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from jax.core import Tracer
from jax.sharding import Mesh

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.hash import Plan, make_placement, make_plan
from jax_dynemb._src.seed import seed_words
from jax_dynemb._src.table import arguments as _arguments
from jax_dynemb._src.table import declaration as _declaration
from jax_dynemb._src.table import growth as _growth
from jax_dynemb._src.table import memory as _memory
from jax_dynemb._src.table.by_kind import ByKind
from jax_dynemb._src.table.departures import Departures
from jax_dynemb._src.table.growth import Growth
from jax_dynemb._src.table.operations import Operations
from jax_dynemb._src.table.portable import Portable
from jax_dynemb._src.table.replication import Replication
from jax_dynemb._src.tt import TTConfig


class Tables(Operations, Departures, Replication, Portable):
    """Describes embedding tables that share their calls; hashable, without arrays.

    Every function takes the state and returns it, and none changes its argument, so
    all of them work inside ``jax.jit``, ``jax.lax.scan`` and ``jax.lax.cond``. Donate
    the state at the outermost ``jit``: then a table is changed in place; otherwise it
    is copied.

    Attributes:
      tables: configs by table name.
      features: table names by feature name.
      engine: holds the tables and runs the operations.
    """

    def __init__(
        self,
        tables: Iterable[TableConfig | TTConfig],
        mesh: Mesh | None = None,
        axis: str | tuple[str, ...] | None = None,
        *,
        axis_name: str | tuple[str, ...] | None = None,
        exchange_factor: float | None = None,
        exchange_dtype: Any = None,
        exchange_pooled: str = "auto",
        exchange_transport: str = "auto",
        devices_per_host: int | None = None,
        share_arrays: bool | None = None,
        plan: Plan | None = None,
    ):
        """Checks that names are unique, and that the devices can share the tables.

        With a mesh every function takes and returns whole batches and whole tables,
        as on one device; the arrays are split over the mesh. Inside a ``shard_map``
        over the same axes each device gives its own ids and gets its own rows.

        Args:
          tables: one config a table, ``TableConfig`` or ``TTConfig``.
          mesh: the devices to shard over; None for the default device.
          axis: the axis of the mesh to split rows and batches over, or a tuple of
            axes; all axes if None.
          axis_name: instead of ``mesh`` and ``axis``, for tables that are used inside
            a ``shard_map`` over these axes only, whatever its mesh is. There
            ``init`` makes the part of each device.
          exchange_factor: room for ids in an exchange between two devices, as a
            multiple of an equal share of a device's batch. What does not fit takes
            further rounds; see ``exchange_peak`` in ``stats``. With 0.5 a batch
            without duplicates takes two, and moves no more than with 1. None: 0.5; 1
            where GPUs read each other's memory, since room that stays empty does not
            travel there; 0.45 to 0.36 where 2 to 8 devices of a host exchange first.
          exchange_dtype: of rows and gradients between devices, e.g. "bfloat16";
            None: no rounding.
          exchange_pooled: what travels between devices for pooled features: the
            distinct "rows" of a device, or "sums", one a bag from each device. "auto"
            takes what moves fewer bytes in the batches of a call; see ``plan``.
          exchange_transport: "peers": GPUs of one host read each other's memory, so
            only rows that mean something move. "collectives": XLA's ``all_to_all``.
            "auto": peers where the GPUs can reach each other. Results are the same.
          devices_per_host: neighbours on the axes that bring their ids together before
            they exchange with others, so that an id of several of them crosses once,
            with its row and its gradient. None: GPUs of a host that read each other's
            memory, where the devices belong to several hosts. 1: no devices do.
          share_arrays: tables of one dim, param_dtype and kind of optimizer state share
            arrays, like TorchRec's table-batched embeddings; on a mesh, those that are
            row-wise. Results are the same, and a step costs the host less, since jit
            pays for each array in and out. ``state_name(table)`` names the arrays in
            the state.
            None: up to 4 GiB share, which bounds what ``grow`` copies of other tables.
            True: no bound. False: each table has arrays of its own, under its name.
          plan: on a mesh, the shardings of some tables, instead of those in their
            configs, and the shards of table-wise ones. ``plan()`` of other ``Tables``
            makes one; so does ``jde.Plan`` by hand.

        Raises:
          TypeError: something else than a list of configs, or than a plan.
          ValueError: a table or feature name occurs twice, or the mesh or the plan
            does not suit.
        """
        _declaration.check_mesh(mesh, axis, axis_name, share_arrays)
        configs = _declaration.configs_of(tables)
        if plan is not None:
            _declaration.check_plan(plan, mesh, axis_name)
            dynamic = {c.name: c for c in plan.apply(_declaration.dynamic(configs))}
            configs = tuple(dynamic.get(c.name, c) for c in configs)
        placement = None
        if mesh is not None or axis_name is not None:
            axes = axis if axis_name is None else axis_name
            placement = make_placement(
                mesh,
                axes,
                exchange_factor,
                exchange_dtype,
                exchange_pooled,
                share_arrays,
                exchange_transport,
                devices_per_host,
            )
        self.engine = _declaration.engine_of(configs, placement, share_arrays, plan)
        if any(config.tier for config in self.engine.catalog.dynamic.values()):
            self._dynamic_memory()  # refuses a tier whose size does not suit its table

    def init(self, seed: Any = 0) -> States:
        """Makes empty tables on the default device, or each shard on its own device.

        Args:
          seed: an int, or a uint32 scalar. Rows are a function of (seed, table name,
            key, column).

        Returns:
          States by table name; see ``state_name``.

        Raises:
          TypeError: another seed, such as a key of ``jax.random``.
          ValueError: the tables are larger than the memory of a device.
        """
        _ffi.check_platform()
        _memory.check_pinned(self._dynamic_memory(), self._shards)
        words = seed_words(seed)
        if not isinstance(words, Tracer):  # a traced init may describe other machines
            _memory.check_device(self.memory(), self._shards)
        return self.engine.init(words)

    def plan(self, ids: Mapping[str, int] | None = None) -> Plan:
        """Says where the tables lie and what a step exchanges; print it.

        Args:
          ids: by feature, how many ids of a batch each device has, padding included;
            without it the exchange is left at 0.
            How many bags they are is what the tables' ``pooling_factors`` say.

        Example:
          >>> print(coll.plan({"user": 8192, "item": 8192}))  # doctest: +SKIP
        """
        for feature in ids or {}:
            self.config_of(feature)
        placement = self.placement and self.placement.here()
        dynamic = self.engine.catalog.dynamic
        mine = {f: n for f, n in (ids or {}).items() if self.features[f] in dynamic}
        return make_plan(placement, tuple(dynamic.values()), mine)

    def partition_specs(self) -> dict[str, Any]:
        """Returns a ``PartitionSpec`` per array of the state, for your own shard_map.

        Raises:
          ValueError: the tables are not on a mesh.
        """
        if self.placement is None:
            raise ValueError(
                "these Tables have no mesh; give jde.Tables mesh=... or axis_name=..."
            )
        specs: dict[str, Any] = self.placement.state_specs(self.placement.stacks)
        if isinstance(self.engine, ByKind):
            specs |= self.engine.tensor_train.partition_specs()
        return specs

    def grow(
        self, state: States, capacities: Mapping[str, int]
    ) -> tuple[Tables, States]:
        """Makes room in some tables; every row, score and optimizer state stays.

        A table gets a whole multiple of its buckets, the fewest that hold the new
        capacity. So nothing moves between devices that have equally many buckets.
        Old and new arrays of a table are in memory together. On one device, other
        tables in the same arrays are copied and keep their capacity. Table-wise tables
        in the same arrays grow together.

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
        _arguments.check_states(self.engine, state, "grow")
        _arguments.check_values(state, "grow")
        growth = _growth.planned(self, capacities)
        _arguments.check_sizes(self.engine, state, capacities, "grow")
        return growth.coll, growth.apply(state)

    def plan_growth(self, capacities: Mapping[str, int]) -> Growth[Self]:
        """Chooses the sizes of ``grow``, which can then be compiled ahead of it.

        Args:
          capacities: by table, how many rows there shall be room for.

        Raises:
          ValueError: a table is that large already, or its name is unknown.
        """
        return _growth.planned(self, capacities)

    def growth_due(
        self,
        stats: Mapping[str, int | float],
        before: Mapping[str, int | float] | None = None,
    ) -> dict[str, int]:
        """Decides which tables shall grow: arithmetic on the host, no arrays.

        A table is due if more than ``grow_at`` of its slots hold rows. One that never
        evicts is also due if it has refused ids since ``before``. One with ``keep_for``
        is also due if it has evicted rows that it should keep. Its size doubles until
        the rows are fewer again, within ``max_capacity``. A table that evicts is never
        due without a ``max_capacity``.

        Args:
          stats: what ``stats`` or the future of ``stats_async`` returned.
          before: the same of an earlier time; None: since the start.

        Returns:
          What ``grow`` takes: by table, how many rows there shall be room for.

        Raises:
          TypeError: ``stats`` is a future.
          ValueError: the numbers are of other tables.

        Example:
          >>> if due := coll.growth_due(coll.stats(state)):  # doctest: +SKIP
          ...     coll, state = coll.grow(state, due)
        """
        return _growth.due(self.engine, stats, before)
