# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables: a collection of embedding tables as pure functions of explicit state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh

from jax_dynemb import _ffi
from jax_dynemb._seed import seed_words
from jax_dynemb.config import ScoreStrategy, TableConfig
from jax_dynemb.engines import LookupEngine, States, StatsFuture, shard
from jax_dynemb.engines.hash import (
    Placement,
    Plan,
    make_placement,
    make_plan,
)
from jax_dynemb.engines.shard import Rule
from jax_dynemb.ops import refuse_packed
from jax_dynemb.rows import Exported, use_counts
from jax_dynemb.table import (
    _arguments,
    _counted,
    _declaration,
    _growth,
    _memory,
)
from jax_dynemb.table._by_kind import ByKind
from jax_dynemb.table._departures import Departures
from jax_dynemb.table._growth import Growth
from jax_dynemb.table._operations import Operations
from jax_dynemb.table._portable import Portable
from jax_dynemb.table._query import query_of
from jax_dynemb.table._replication import Replication, without_rows
from jax_dynemb.table._row_operations import RowOperations
from jax_dynemb.tt import TTConfig


class Tables(Operations, RowOperations, Departures, Replication, Portable):
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
        exchange_factor: float = 0.5,
        exchange_dtype: Any = None,
        exchange_pooled: str = "auto",
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
            without duplicates takes two, and moves no more than with 1.
          exchange_dtype: of rows and gradients between devices, e.g. "bfloat16";
            None: no rounding.
          exchange_pooled: what travels between devices for pooled features: the
            distinct "rows" of a device, or "sums", one a bag from each device. "auto"
            takes what moves fewer bytes in the batches of a call; see ``plan``.
          share_arrays: on one device, tables of one dim, param_dtype and kind of
            optimizer state share arrays, like TorchRec's table-batched embeddings.
            Results are the same, and a step costs the host less, since jit pays for
            each array in and out. ``state_name(table)`` names the arrays in the state.
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
                mesh, axes, exchange_factor, exchange_dtype, exchange_pooled
            )
        self.engine = _declaration.engine_of(configs, placement, share_arrays, plan)
        if any(config.tier for config in self.engine.catalog.dynamic.values()):
            self._dynamic_memory()  # refuses a tier whose size does not suit its table

    def with_tables(self, tables: Iterable[TableConfig | TTConfig]) -> Self:
        """Holds other tables on the same devices, those of equal names at their places.

        Args:
          tables: one config a table.
        """
        return self._with_engine(self.engine.with_configs(tables))

    def _with_engine(self, engine: LookupEngine) -> Self:
        new = object.__new__(type(self))
        new.engine = engine
        return new

    def __eq__(self, other: object) -> bool:
        """Compares the configs, their order and the devices."""
        return isinstance(other, Tables) and self.engine == other.engine

    def __hash__(self) -> int:
        """Hashes the configs, so that jit takes a collection as a static argument."""
        return hash(self.engine)

    def __repr__(self) -> str:
        """Shows names and sizes."""
        tables = self.tables.values()
        inner = ", ".join(f"{c.name}: {_rows_of(c)} x {c.dim}" for c in tables)
        return f"Tables({inner})"

    @property
    def placement(self) -> Placement | None:
        """Returns the mesh and how tables lie on it; None on one device."""
        return self.engine.placement

    @property
    def share_arrays(self) -> bool | None:
        """Whether tables share arrays on one device, as given; False on a mesh."""
        return self.engine.share_arrays

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

    def memory(self) -> dict[str, dict[str, int]]:
        """Computes what the tables take, before anything is allocated.

        Returns:
          By table the bytes of all its shards. "hbm" counts all arrays in device
          memory, rings of a tier too; of a tensor train, the cores and their optimizer
          states on every device. "pinned_host" counts the home records of a tier.

        Example:
          >>> of_cat = coll.memory()["cat"]  # doctest: +SKIP
          >>> of_cat["hbm"] / 1e9  # doctest: +SKIP
        """
        return _memory.memory(self.engine.catalog.configs, self.placement)

    def _dynamic_memory(self) -> dict[str, dict[str, int]]:
        return _memory.memory(self.engine.catalog.dynamic.values(), self.placement)

    @property
    def _shards(self) -> int:
        return 1 if self.placement is None else self.placement.shards

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

    def plan_growth(self, capacities: Mapping[str, int]) -> Growth:
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

    def export(
        self,
        state: States,
        table: str,
        *,
        min_score: int = 0,
        since: int | None = None,
        known_keys: np.ndarray | None = None,
        chunk_buckets: int | None = None,
        where: Rule | None = None,
    ) -> Iterator[Exported]:
        """Streams the live rows of a table to the host. Not for use inside jit.

        On several hosts each process streams the rows of its own devices.

        With ``since`` and ``known_keys`` it streams what a replica needs to become
        equal to this table, see ``apply_delta``. Call it between an update and the
        next lookup: a row counts as changed if a lookup or an insert used it.

        Args:
          state: the tables.
          table: which one.
          min_score: rows with a lower score are left out. Scores of LFU and
            customized tables are the count or the given score times 2**32.
          since: rows that no lookup used since are left out: what ``get_score`` said
            when the replica was made.
          known_keys: int64[n], the keys that the replica holds. Those that left since
            come first, as ``removed`` of a chunk without rows.
          chunk_buckets: buckets of 128 rows read at a time; about 256 MB if None.
          where: rows that ``erase_where`` would remove by this rule are left out. The
            table keeps them; its index is copied.

        Yields:
          Keys, rows, scores and optimizer states of some rows.
        """
        _arguments.check_states(self.engine, state, "export")
        _arguments.check_values(state, "export")
        config = self.engine.catalog.table(table)
        name = config.name
        _arguments.check_arrays(self.engine, state, [name], "export")
        _counted.warn_of_untrained(self.engine, state, config)
        query = query_of(config, min_score, since, known_keys, chunk_buckets)
        if where is not None:
            state = without_rows(self, state, {name: where})
        return self.engine.export(state, name, query)

    def counted(self, state: States, table: str) -> tuple[np.ndarray, np.ndarray]:
        """Reads the ids without a row that ``Exact`` counts. Not for use inside jit.

        On several hosts each process reads the ids of its own devices. An id that
        ``insert`` gave a row stays counted as it was.

        Args:
          state: the tables.
          table: which one.

        Returns:
          Ids in ascending order, int64[n], and how often each has occurred, uint32[n].

        Raises:
          ValueError: the table's admission rule does not count by key.
        """
        _arguments.check_states(self.engine, state, "counted")
        _arguments.check_values(state, "counted")
        config = self.engine.catalog.dynamic_table(table, "counted")
        _arguments.check_sizes(self.engine, state, [config.name], "counted")
        arrays = self.state_name(config.name)
        return _counted.counted(self.engine, state, arrays, config)

    def get_score(self, state: States) -> dict[str, int]:
        """Reads the clock of each table's next lookup: a mark for ``export``.

        The clock counts training lookups, also those that ``insert`` makes: one a
        call and table. ``find``, ``erase`` and updates leave it alone. The clock of a
        timestamp table is the time in nanoseconds.

        Args:
          state: the tables.
        """
        self._check_counters(state, "get_score")
        dynamic = self.engine.catalog.dynamic
        counted = {name: self.hash_engine.counted(state, name) for name in dynamic}
        return {name: shard.next_score(each) for name, each in counted.items()}

    def set_score(self, state: States, scores: Mapping[str, int]) -> States:
        """Lets the next lookup of some tables have this clock, such as a global step.

        Args:
          state: the tables.
          scores: by table; those that count lookups only, and never backwards.

        Raises:
          ValueError: the table has another clock, or it is ahead already.
        """
        _arguments.check_states(self.engine, state, "set_score")
        _arguments.check_values(state, "set_score")
        _arguments.check_mapping(scores, "set_score: scores", "table", self.tables)
        _arguments.check_sizes(self.engine, state, scores, "set_score")
        engine, new = self.hash_engine, dict(state)
        for name, score in scores.items():
            config = self.engine.catalog.dynamic_table(name, "set_score")
            refuse_packed([config], "set_score")
            arrays = self.state_name(name)
            counted, rows = engine.counted(new, name), engine.counter_rows(name)
            new[arrays] = shard.set_score(config, counted, new[arrays], rows, score)
        return new

    def use_counts(self, state: States, table: str, scores: np.ndarray) -> np.ndarray:
        """Decodes the scores of an LFU table: how often its rows were used.

        With ``lfu_halflife`` a use of long ago counts as part of one: what rows weigh
        beside a use by the latest lookup.

        Args:
          state: the tables.
          table: which one.
          scores: uint64[n], as ``export`` returns them.

        Returns:
          float64[n].

        Raises:
          ValueError: the table counts no uses.
        """
        _arguments.check_states(self.engine, state, "use_counts")
        _arguments.check_values(state, "use_counts")
        config = self.engine.catalog.dynamic_table(table, "use_counts")
        if config.score_strategy is not ScoreStrategy.LFU:
            raise ValueError(
                f"use_counts: table '{config.name}' counts no uses. Give it "
                "score_strategy='lfu', or read its scores as they are."
            )
        _arguments.check_sizes(self.engine, state, [config.name], "use_counts")
        clock = shard.next_score(self.hash_engine.counted(state, config.name)) - 1
        return use_counts(np.asarray(scores), config.lfu_halflife or 0, clock)

    def stats(self, state: States) -> dict[str, int | float]:
        """Reads counters as numbers, by "table/name"; waits for the device.

        Now: rows, capacity, load_factor, and rows of the fullest bucket and on average
        (fullest_bucket, mean_bucket; see concepts/tables.md). Since the start: inserted
        and evicted rows, refused ids (no free slot), lost_updates (gradients of evicted
        rows), step (updates) and lookups. It warns of a table with lookups and no step.

        Devices read 128 bytes of each bucket, a sixteenth of the index, and no rows.

        Raises:
          RuntimeError: a table with ``on_full="error"`` has refused ids.
          TypeError: inside jit, where there are no numbers yet.
        """
        self._check_counters(state, "stats")
        return self.engine.stats_async(state).result()

    def stats_async(self, state: States) -> StatsFuture:
        """Starts to read counters; waits for nothing, so a step may call it.

        The numbers are copied on the device first, behind the steps that run there.
        The next step may donate the state at once.

        Args:
          state: the tables.

        Returns:
          A future: ``done()`` says whether the numbers have arrived, ``result()`` are
          those of ``stats``.

        Raises:
          TypeError: inside jit, where there are no numbers yet.

        Example:
          >>> future = coll.stats_async(state)  # doctest: +SKIP
          >>> state = step(state, batch)  # doctest: +SKIP
          >>> future.result()["cat/rows"]  # doctest: +SKIP
        """
        self._check_counters(state, "stats_async")
        return self.engine.stats_async(state)

    def _check_counters(self, state: States, call: str) -> None:
        _arguments.check_states(self.engine, state, call)
        _arguments.check_arrays(self.engine, state, self.tables, call)
        _arguments.check_values(state, call)
        _arguments.check_sizes(self.engine, state, self.tables, call)


def _rows_of(config: TableConfig | TTConfig) -> int:
    return config.num_embeddings if isinstance(config, TTConfig) else config.num_slots
