# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables: a collection of embedding tables as pure functions of explicit state."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jax_dynemb import _ffi
from jax_dynemb._seed import seed_words, table_seed
from jax_dynemb.config import ScoreStrategy, TableConfig
from jax_dynemb.ops import _lookup, _rows
from jax_dynemb.ops._layout import FeatureInput, FeatureLayout, prepare
from jax_dynemb.ops._residual import Residual, make_residual
from jax_dynemb.ops._state import TableState, cleared_state, empty_state
from jax_dynemb.sharding import _collection as _on_mesh
from jax_dynemb.sharding._hosts import counter_rows, exchange_stats, table_counters
from jax_dynemb.sharding._placement import (
    Placement,
    check_slots,
    make_placement,
    placement_of,
)
from jax_dynemb.sharding._plan import Plan, make_plan
from jax_dynemb.sharding._residual import ShardedResidual
from jax_dynemb.table import (
    _chunks,
    _columns,
    _export,
    _grow,
    _insert,
    _scores,
    _stats,
    _update,
    _weights,
)
from jax_dynemb.table._stats import counter_values
from jax_dynemb.table._update import RowGradients

States = dict[str, TableState]


class Tables:
    """Embedding tables that share their calls. Static and hashable; holds no arrays.

    Every function takes the state and returns it, and none changes its argument, so
    all of them work inside ``jax.jit``, ``jax.lax.scan`` and ``jax.lax.cond``. Donate
    the state at the outermost ``jit``: then a table is changed in place; otherwise it
    is copied.

    Attributes:
      tables: configs by table name.
      features: table names by feature name.
      placement: the mesh and how tables lie on it; None on one device.
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

        Raises:
          ValueError: a table or feature name occurs twice, or the mesh does not suit.
        """
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
        placement = None
        if mesh is not None or axis_name is not None:
            axes = axis if axis_name is None else axis_name
            placement = make_placement(
                mesh, axes, exchange_factor, exchange_dtype, exchange_pooled
            )
        self._take(tuple(tables), placement)

    def _take(
        self, configs: tuple[TableConfig, ...], placement: Placement | None
    ) -> None:
        """Checks the tables and gives each its place."""
        self.tables = {config.name: config for config in configs}
        self.features = {
            f: config.name for config in configs for f in config.feature_names
        }
        _check_unique("table", [c.name for c in configs])
        _check_unique("feature", [f for c in configs for f in c.feature_names])
        if not configs:
            raise ValueError("Tables needs one TableConfig or more")
        self.placement = placement and placement.with_tables(configs)
        if placement is None:
            check_slots(configs)
        self._key = (configs, self.placement)

    def with_tables(self, tables: Iterable[TableConfig]) -> Tables:
        """Other tables on the same devices, those of the same names at their places.

        Args:
          tables: one config a table.
        """
        new = object.__new__(Tables)
        new._take(tuple(tables), self.placement)
        return new

    def __eq__(self, other: object) -> bool:
        """Equal configs in equal order."""
        return isinstance(other, Tables) and self._key == other._key

    def __hash__(self) -> int:
        """Of the configs, so that jit takes it as a static argument."""
        return hash(self._key)

    def __repr__(self) -> str:
        """Names and sizes."""
        inner = ", ".join(f"{c.name}: {c.num_slots} x {c.dim}" for c in self._key[0])
        return f"Tables({inner})"

    def config_of(self, feature: str) -> TableConfig:
        """The table that a feature looks up.

        Raises:
          ValueError: no table has the feature.
        """
        name = self.features.get(feature)
        if name is None:
            raise ValueError(_unknown("Feature", feature, self.features))
        return self.tables[name]

    def _table(self, name: str) -> TableConfig:
        if name not in self.tables:
            raise ValueError(_unknown("Table", name, self.tables))
        return self.tables[name]

    def state_name(self, table: str) -> str:
        """Under which name the arrays of a table are in a state.

        That of the table, unless it shares arrays: see ``sharding="table_wise"``.

        Args:
          table: its name.

        Raises:
          ValueError: there is no such table.
        """
        name = self._table(table).name
        return name if self.placement is None else self.placement.stack_of(name).name

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
        return _init(self, seed_words(seed))

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
        return state | {
            name: cleared_state(config, state[name])
            for name, config in self.tables.items()
        }

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
        for name in capacities:
            self._table(name)
        return _grow.grow(self, state, capacities)

    def lookup(
        self,
        state: States,
        ids: Mapping[str, Any],
        weights: Mapping[str, Any] | None = None,
        scores: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, jax.Array], Residual | ShardedResidual, States]:
        """Training lookup: an unseen id gets a row.

        Args:
          state: the tables.
          ids: by feature: uint32[..., 2] from ``jde.ids``, a 64-bit jax Array, or a
            ``Jagged``. -1 is padding: a zero row, no insert, no gradient.
          weights: by feature, float[...] in the shape of the ids: factors of the
            rows of a pooled feature.
          scores: by table, a uint32 scalar: what a CUSTOMIZED table scores the rows
            of this lookup with.

        Returns:
          Rows by feature: dtype[..., dim], one for each id, or for each bag where the
          table pools (the last axis of ids with two axes or more; ids with one axis
          are bags of one); the residual for ``apply_gradients``; and the new state.

        Raises:
          TypeError: 32-bit ids for a table with 64-bit keys.
          ValueError: unknown feature or table, or a shape does not fit.
          NotImplementedError: under ``jax.vmap``.
        """
        given = self._scores(scores or {})
        if self.placement is not None:
            weights = self._check_features(ids, weights)
            return _on_mesh.lookup(self, state, ids, weights, given)
        inputs = self._prepare(ids, weights)
        used = self._used(inputs)
        numbers = jnp.stack([given[t.name] for t in used])
        outputs, new = _lookup.lookup(used, state, inputs, numbers)
        rows, residuals = {}, {}
        for (layout, given), output in zip(inputs, outputs, strict=True):
            rows[layout.feature] = self._shaped(layout, output["rows"])
            residuals[layout.feature] = make_residual(layout, given, output)
        return rows, Residual(residuals), state | new

    def find(
        self,
        state: States,
        ids: Mapping[str, Any],
        weights: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array], States]:
        """Serving lookup: changes nothing.

        Args:
          state: the tables.
          ids: as for ``lookup``.
          weights: as for ``lookup``.

        Returns:
          Rows as ``lookup`` returns them, with the evaluation initialiser's row for
          an id that is not stored; found, bool in the shape of the ids; and the
          state, to be carried on inside a program that also changes it.
        """
        if self.placement is not None:
            weights = self._check_features(ids, weights)
            return _on_mesh.find(self, state, ids, weights)
        inputs = self._prepare(ids, weights)
        outputs, new = _lookup.find(self._used(inputs), state, inputs)
        rows, found = {}, {}
        for (layout, _), output in zip(inputs, outputs, strict=True):
            rows[layout.feature] = self._shaped(layout, output["rows"])
            flags = output["found"].astype(bool)
            found[layout.feature] = layout.shaped_as_given(flags)
        return rows, found, state | new

    def apply_gradients(
        self,
        state: States,
        residual: Any,
        d_rows: Any,
        *,
        learning_rate: Any = None,
        hyper: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> States:
        """One optimizer update of every row that the lookups touched.

        All gradients of one row are summed first. A gradient whose slot no longer
        holds its id (the row left since) is passed over and counted in
        ``lost_updates``; if the id came back meanwhile, it is a new row that may or
        may not have the old slot, so update before you erase or look up elsewhere.

        Args:
          state: the tables.
          residual: of one lookup; or stacked by ``lax.scan`` over micro-batches; or a
            list of them.
          d_rows: gradients of the looked-up rows, in the same structure.
          learning_rate: instead of the optimizers' own, a float or float32 scalar for
            all tables, or a dict by table. Fused optimizers only.
          hyper: any hyper-parameters by table and name (learning_rate, eps, b1, b2,
            weight_decay), floats or traced scalars. Fused optimizers only.

        Returns:
          The new state.
        """
        merged = self._hyper(learning_rate, hyper or {})
        if self.placement is not None:
            return _on_mesh.apply_gradients(self, state, residual, d_rows, merged)
        return _update.apply_gradients(self, state, residual, d_rows, merged)

    def reduce_gradients(
        self, state: States, residual: Any, d_rows: Any
    ) -> tuple[dict[str, RowGradients], States]:
        """The summed gradient of each distinct row, without an update.

        Args:
          state: the tables.
          residual: as for ``apply_gradients``.
          d_rows: as for ``apply_gradients``.

        Returns:
          Slots and sums by table; on a mesh by the name of its arrays, see
          ``state_name``; and the state, to be carried on.
        """
        if self.placement is not None:
            return _on_mesh.reduce_gradients(self, state, residual, d_rows)
        return _update.reduce_gradients(self, state, residual, d_rows)

    def weight_gradients(
        self, state: States, residual: Residual, d_rows: Mapping[str, Any]
    ) -> tuple[dict[str, jax.Array], States]:
        """Gradients with respect to the weights of a lookup.

        Call it before ``apply_gradients``: it reads the rows as they are.

        Args:
          state: the tables.
          residual: of one lookup with weights.
          d_rows: gradients of the looked-up rows.

        Returns:
          By feature that had weights, float32 in the shape of the ids; and the state,
          to be carried on.
        """
        if self.placement is not None:
            return _on_mesh.weight_gradients(self, state, residual, d_rows)
        return _weights.weight_gradients(self, state, residual, d_rows)

    def gather(
        self, state: States, slots: Mapping[str, jax.Array]
    ) -> tuple[dict[str, dict[str, jax.Array]], States]:
        """Rows by slot: "values", optimizer states and "scores", by table.

        Args:
          state: the tables.
          slots: int32[n] by table, as ``reduce_gradients`` returns them; a negative
            slot reads zeros.

        Returns:
          float32[n, dim] or [n] (scores: uint32[n, 2]) by table and name; and the
          state, to be carried on.
        """
        if self.placement is not None:
            return _on_mesh.gather(self, state, slots)
        rows, new = {}, dict(state)
        for name, each in slots.items():
            rows[name], new[name] = _rows.gather(self._table(name), state[name], each)
        return rows, new

    def scatter(
        self,
        state: States,
        slots: Mapping[str, jax.Array],
        rows: Mapping[str, Mapping[str, jax.Array]],
    ) -> States:
        """Writes rows by slot: what ``gather`` returns, or some of it.

        Args:
          state: the tables.
          slots: int32[n] by table, distinct; a negative slot writes nothing.
          rows: arrays by table and name, in the shapes that ``gather`` returns.
        """
        if self.placement is not None:
            return _on_mesh.scatter(self, state, slots, rows)
        new = dict(state)
        for name, each in slots.items():
            new[name] = _rows.scatter(self._table(name), state[name], each, rows[name])
        return new

    def insert(
        self,
        state: States,
        ids: Mapping[str, Any],
        rows: Mapping[str, Any],
        *,
        optimizer_state: Mapping[str, Mapping[str, Any]] | None = None,
        scores: Mapping[str, Any] | None = None,
    ) -> States:
        """Stores rows: present ones are overwritten, others inserted.

        A full bucket evicts or refuses as in ``lookup``. Of an id that occurs twice
        the last row is kept.

        Args:
          state: the tables.
          ids: by table name.
          rows: by table name, float[..., dim].
          optimizer_state: by table and state name; a new row starts with the initial
            state where it is not given, and an old row keeps its own.
          scores: by table, the scores to store, uint64 (numpy) or uint32[..., 2], as
            ``export`` returns them.
        """
        new = dict(state)
        for name, each in ids.items():
            config = self._table(name)
            if name not in rows:
                raise ValueError(f"insert: rows of table '{name}' are missing")
            given = (
                each,
                rows[name],
                (optimizer_state or {}).get(name, {}),
                (scores or {}).get(name),
            )
            if self.placement is not None:
                place = self.state_name(name)
                new[place] = _on_mesh.insert(self, new[place], config, *given)
            else:
                new[name] = _insert.insert(config, state[name], *given)
        return new

    def erase(self, state: States, ids: Mapping[str, Any]) -> States:
        """Removes ids; those that are not stored are passed over.

        Args:
          state: the tables.
          ids: by table name.
        """
        new = dict(state)
        for name, each in ids.items():
            config = self._table(name)
            if self.placement is not None:
                place = self.state_name(name)
                new[place] = _on_mesh.erase(self, new[place], config, each)
                continue
            _, given = prepare(config, name, each)
            new[name] = _rows.erase(config, state[name], given.ids)
        return new

    def export(
        self,
        state: States,
        table: str,
        *,
        min_score: int = 0,
        since: int | None = None,
        known_keys: np.ndarray | None = None,
        chunk_buckets: int | None = None,
    ) -> Iterator[_export.Exported]:
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

        Yields:
          Keys, rows, scores and optimizer states of some rows.
        """
        given = (min_score, since, known_keys, chunk_buckets)
        if self._table(table).sharding == "column_wise" and self.placement is not None:
            return _columns.export_columns(self._shards(state, table), *given)
        return _export.export(self._parts(state, table), *given)

    def _parts(self, state: States, table: str) -> _export.Parts:
        """The table in pieces that hold all keys together, each once."""
        if self.placement is None:
            return [(self._table(table), state[table])]
        shards = self._shards(state, table)
        return shards[:1] if self._table(table).sharding == "column_wise" else shards

    def _shards(self, state: States, table: str) -> _export.Parts:
        config = self._table(table)
        return _on_mesh.local_shards(self, config, state[self.state_name(table)])

    def counted(self, state: States, table: str) -> TableState:
        """The counters of one table on the host, as numpy; of all hosts' shards."""
        if self.placement is None:
            return state[table]
        stack = self.placement.stack_of(table)
        return table_counters(stack, table, state[stack.name])

    def counter_rows(self, table: str) -> slice:
        """The rows of its arrays' counters that belong to a table."""
        if self.placement is None:
            return slice(None)
        return counter_rows(self.placement.stack_of(table), table)

    def apply_delta(
        self, state: States, table: str, delta: Iterable[_export.Exported]
    ) -> States:
        """Brings a replica up to date. Not for use inside jit.

        Its capacity may differ, but a smaller replica may have no room for a row.

        Args:
          state: the replica; the table's arrays are given away.
          table: which one.
          delta: what ``export`` of the original streams, in its order.
        """
        config, place = self._table(table), self.state_name(table)
        new = state[place]
        for chunk in delta:
            if chunk.removed is not None:
                new = _chunks.erase_keys(self, config.name, new, chunk.removed)
            new = _chunks.insert_chunks(self, config.name, new, [chunk])
        return state | {place: new}

    def get_score(self, state: States) -> dict[str, int]:
        """By table, the clock that its next lookup will have: a mark for ``export``.

        The clock counts lookups; that of a timestamp table is the time in nanoseconds.

        Args:
          state: the tables.
        """
        return {n: _scores.next_score(self.counted(state, n)) for n in self.tables}

    def set_score(self, state: States, scores: Mapping[str, int]) -> States:
        """Lets the next lookup of some tables have this clock, such as a global step.

        Args:
          state: the tables.
          scores: by table; those that count lookups only, and never backwards.

        Raises:
          ValueError: the table has another clock, or it is ahead already.
        """
        new = dict(state)
        for name, score in scores.items():
            place, config = self.state_name(name), self._table(name)
            counted = self.counted(new, name)
            new[place] = _scores.set_score(
                config, counted, new[place], self.counter_rows(name), int(score)
            )
        return new

    def stats(self, state: States) -> dict[str, int | float]:
        """Counters as numbers, by "table/name"; waits for the device.

        rows, capacity, load_factor; since the start: inserted and evicted rows,
        refused ids (no place was left), lost_updates (gradients whose row had left),
        step (updates) and lookups.

        Raises:
          RuntimeError: a table with ``on_full="error"`` has refused ids.
        """
        result: dict[str, int | float] = {}
        for name, config in self.tables.items():
            counters = counter_values(self.counted(state, name))
            result |= _stats.stats(config, counters)
            if self.placement is not None:
                result |= exchange_stats(placement_of(self), config, state, counters)
        return result

    def _prepare(
        self, ids: Mapping[str, Any], weights: Mapping[str, Any] | None
    ) -> list[tuple[FeatureLayout, FeatureInput]]:
        given = self._check_features(ids, weights)
        return [
            prepare(self.config_of(feature), feature, each, given.get(feature))
            for feature, each in ids.items()
        ]

    def _check_features(
        self, ids: Mapping[str, Any], weights: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        weights = {k: w for k, w in (weights or {}).items() if w is not None}
        unknown = set(weights) - set(ids)
        if unknown:
            raise ValueError(f"weights for {sorted(unknown)}, but no ids for them")
        if not ids:
            raise ValueError("ids must have one feature or more")
        for feature in ids:
            config = self.config_of(feature)
            if feature in weights and config.pooling is None:
                raise ValueError(
                    f"Feature '{feature}' has weights, but table '{config.name}' does "
                    "not pool. Set pooling='sum' or 'mean', or multiply the rows."
                )
        return weights

    def _used(self, inputs: list[tuple[FeatureLayout, Any]]) -> list[TableConfig]:
        names = {layout.table for layout, _ in inputs}
        return [config for name, config in self.tables.items() if name in names]

    def _shaped(self, layout: FeatureLayout, rows: jax.Array) -> jax.Array:
        return rows.reshape(*layout.rows_shape, rows.shape[-1])

    def _scores(self, given: Mapping[str, Any]) -> dict[str, jax.Array]:
        for name in given:
            if self._table(name).score_strategy is not ScoreStrategy.CUSTOMIZED:
                raise ValueError(
                    f"Table '{name}' keeps its own scores; give scores only to tables "
                    "with score_strategy='customized'."
                )
        return {
            name: jnp.asarray(given.get(name, 0), jnp.uint32) for name in self.tables
        }

    def _hyper(
        self, learning_rate: Any, hyper: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        merged = {name: dict(numbers) for name, numbers in hyper.items()}
        if learning_rate is not None:
            by_table = (
                learning_rate
                if isinstance(learning_rate, Mapping)
                else dict.fromkeys(self.tables, learning_rate)
            )
            for name, rate in by_table.items():
                merged.setdefault(name, {})["learning_rate"] = rate
        for name in merged:
            if not hasattr(self._table(name).optimizer, "kind"):
                raise ValueError(
                    f"Table '{name}' has an optax optimizer: its hyper-parameters are "
                    "part of the transformation. Give it a schedule instead."
                )
        return merged


@functools.partial(jax.jit, static_argnums=0)
def _init(tables: Tables, seed: Any) -> States:
    return {
        name: empty_state(config, table_seed(seed, name))
        for name, config in tables.tables.items()
    }


def _check_unique(what: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"{what} names must be unique, but {twice} occur twice; to share a table "
            "between features list them in its feature_names."
        )


def _unknown(what: str, name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(str(name), list(known), n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return f"{what} '{name}' is not known. Known: {sorted(known)}{hint}"
