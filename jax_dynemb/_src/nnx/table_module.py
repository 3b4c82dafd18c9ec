# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Implements the base of embedding modules: tables, their state, the lookup."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from jax_dynemb._src.engines import Routed, StatsFuture
from jax_dynemb._src.engines.shard import Rule
from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.nnx.fast_path import (
    ObservedModule,
    on_tables_changed,
    on_tables_read,
    reads,
    watch,
    writable,
)
from jax_dynemb._src.nnx.growing import growth_now, last_known
from jax_dynemb._src.nnx.host_time import host_time
from jax_dynemb._src.nnx.places import places_of, put_back
from jax_dynemb._src.nnx.pool import pool
from jax_dynemb._src.nnx.sharing_rows import sharing_rows
from jax_dynemb._src.nnx.tape import attach, finish_prefetch
from jax_dynemb._src.nnx.variable import Table
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.table import Tables, batch_of, check_values, weights_of

Ids = jax.Array | Jagged
Batch = Mapping[str, Ids] | Routed

_PLACES = "places of arrays"  # no name of an attribute


def drawn_seed(module: str, rngs: Any) -> jax.Array:
    """Draws the seed of a module's initial values, uint32[]."""
    if not hasattr(rngs, "params"):
        raise TypeError(
            f"{module} needs rngs, from which it draws the seed of initial rows: write "
            f"{module}(..., rngs=nnx.Rngs(0)), not {kind_of(rngs)}."
        )
    return jax.random.bits(rngs.params(), (), jnp.uint32)


class TableModule(ObservedModule):
    """Holds the tables and turns ids into rows; the modules users build are below.

    Attributes:
      coll: the functional core of these tables, static.
      tables: one ``jde.nnx.Table`` Variable a table, or for tables that share arrays.
      deterministic: True after ``model.eval()``: look up without inserting.
    """

    def __init__(
        self,
        tables: Iterable[Any],
        *,
        rngs: nnx.Rngs | None = None,
        mesh: Mesh | None = None,
        axis: str | tuple[str, ...] | None = None,
        rows_of: TableModule | None = None,
        **options: Any,
    ):
        self.deterministic = False
        if rows_of is not None:
            self.coll = sharing_rows(rows_of.coll, tables)
            self.tables = nnx.data(dict(rows_of.tables))
            return
        self.coll = Tables(tuple(tables), mesh=mesh, axis=axis, **options)
        seed = drawn_seed(type(self).__name__, rngs)
        state = self.coll.init(seed)
        self.tables = nnx.data({name: Table(state[name]) for name in state})

    def stats(self, wait: bool = True) -> dict[str, float | int]:
        """Reads the counters: ``"cat/rows"``, ``"cat/load_factor"``, ...

        Args:
          wait: True waits for the device; call it once in a while, not in every step.
            False returns the newest numbers that have arrived, and starts to copy
            the present ones: a step may call it. The first call returns no numbers.
        """
        if wait:
            check_values(self.get_state(), "stats")
            return self._stats_future().result()
        return last_known(self, self._stats_future)

    def _stats_future(self) -> StatsFuture:
        return self.coll.stats_async(self.get_state())

    def get_state(self) -> dict[str, TableState]:
        """Returns the state as the functional core takes it, by table name."""
        return self._state()

    def _state(self) -> dict[str, TableState]:
        # Lookups call this: nnx.tabulate lists the calls of public methods.
        finish_prefetch(self)
        on_tables_read(self)
        return {name: table.get_value() for name, table in self.tables.items()}

    def set_state(self, state: Mapping[str, TableState]) -> None:
        """Takes over a state that an operation of the functional core returned.

        Example:
          >>> sparse.set_state(
          ...     sparse.coll.erase(sparse.get_state(), {"cat": ids})
          ... )  # doctest: +SKIP
        """
        self._set_state(state)

    def _set_state(self, state: Mapping[str, TableState]) -> None:
        self._assign(state)
        on_tables_changed(self)

    def _assign(self, state: Mapping[str, TableState]) -> None:
        for name, table in self.tables.items():
            table.set_value(state[name])

    def grow(self, capacities: Mapping[str, int]) -> None:
        """Makes room in some tables, see ``jde.Tables.grow``. Not for use inside jit.

        Args:
          capacities: by table, how many rows there shall be room for.
        """
        self.coll, state = self.coll.grow(self.get_state(), capacities)
        self.set_state(state)

    def maybe_grow(self, *, every: int = 100) -> dict[str, int]:
        """Grows the tables that are due, see ``jde.Tables.growth_due``.

        Call it after each step, or after equally many, outside of jit. It reads the
        counters behind the steps and waits for none after the third call. The next step
        of ``jde.nnx.jit`` is compiled again for the larger tables;
        ``jde.lifecycle.Grower`` compiles it ahead.

        Args:
          every: training steps between two reads of the counters.

        Returns:
          The new number of slots of each table that has grown; usually empty.

        Raises:
          RuntimeError: a table with ``on_full="error"`` has refused ids.
        """
        growth = growth_now(self, every)
        if growth is None:
            return {}
        before, self.coll = self.coll.engine.catalog.dynamic, growth.coll
        self.set_state(growth.apply(self.get_state()))
        new = self.coll.engine.catalog.dynamic
        sizes = {name: config.num_slots for name, config in new.items()}
        return {n: slots for n, slots in sizes.items() if slots > before[n].num_slots}

    def known_in(self, part: Any) -> dict[str, Any]:
        """Picks from a part of a batch what holds ids of this collection; empty: none.

        Args:
          part: any node of a pytree.
        """
        if not isinstance(part, Mapping):
            return {}
        return {name: part[name] for name in part if name in self.coll.features}

    def ids_in(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Returns ids by feature from what ``known_in`` has picked.

        Args:
          known: for this collection, and maybe for others.
        """
        return self.known_in(known)

    def fed(self, batch: Any) -> tuple[dict[str, Any], Any]:
        """Finds the ids of a batch on the host, for ``jde.nnx.prefetch_rows``.

        Args:
          batch: a pytree.

        Returns:
          Ids by feature of the core, and the batch as a step takes it.

        Raises:
          TypeError: it holds none.
        """
        known: dict[str, Any] = {}

        def found(node: Any) -> bool:
            known.update(own := self.known_in(node))
            return bool(own)

        jax.tree.leaves(batch, is_leaf=found)
        if not known:
            raise TypeError(
                f"no ids of the features {list(self.coll.features)} are in a batch "
                f"that is {kind_of(batch)}. Write {{'feature': ids}}."
            )
        return self.ids_in(known), batch

    def _route(
        self,
        ids: Mapping[str, Ids],
        weights: Mapping[str, jax.Array] | None,
        weighted: Iterable[str] = (),
    ) -> Routed:
        """Sends a batch ahead; its weights are for the pooling in this Module."""
        ids, weights = batch_of(self.coll.engine.catalog, ids, weights)
        coll = _fetching_rows_of(self.coll, frozenset(weights) | frozenset(weighted))
        return dataclasses.replace(coll.route(ids), weights=weights)

    def erase_where(
        self, rules: Mapping[str, Rule], *, dry_run: bool = False
    ) -> dict[str, jax.Array]:
        """Removes rows by rule, see ``jde.Tables.erase_where``.

        Call it between two steps, or as a part of ``jde.nnx.jit``.

        Args:
          rules: by table name.
          dry_run: True removes nothing, and counts what it would remove.

        Returns:
          By table the number of removed rows, uint32[].
        """
        removed, state = self.coll.erase_where(self.get_state(), rules, dry_run=dry_run)
        if not dry_run:
            self.set_state(state)
        return removed

    def decay(self, factors: Mapping[str, Any]) -> None:
        """Multiplies the counts of LFU tables, see ``jde.Tables.decay``.

        Args:
          factors: by table name, from 0 to 1.
        """
        self.set_state(self.coll.decay(self.get_state(), factors))

    def prefetch(self, ids: Mapping[str, Ids]) -> None:
        """Brings rows of a coming batch into device memory, see ``Tables.prefetch``.

        Only rows of tables with tiers move, and no result changes. Call it in
        ``jde.nnx.jit``, behind the lookup of the batch before.

        Args:
          ids: by feature.
        """
        self.set_state(self.coll.prefetch(self.get_state(), ids))

    def pin(self, ids: Mapping[str, Ids]) -> None:
        """Keeps the rows of some ids, see ``jde.Tables.pin``.

        Args:
          ids: by table name.
        """
        self.set_state(self.coll.pin(self.get_state(), ids))

    def unpin(self, ids: Mapping[str, Ids]) -> None:
        """Unpins the rows of some ids, see ``jde.Tables.unpin``.

        Args:
          ids: by table name.
        """
        self.set_state(self.coll.unpin(self.get_state(), ids))

    def set_view(self, deterministic: bool | None = None) -> None:
        """Class method used by ``nnx.view``.

        Args:
          deterministic: if True, lookups do not insert.
        """
        if deterministic is not None:
            self.deterministic = deterministic

    def __getstate__(self) -> dict[str, Any]:
        """Returns what ``pickle`` keeps: all attributes, and where the arrays are."""
        return {**vars(self), _PLACES: places_of(self)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Takes over what ``pickle`` kept; arrays go to where they were."""
        vars(self).update({k: x for k, x in state.items() if k != _PLACES})
        put_back(self, state[_PLACES])

    def _on_built(self) -> None:
        """Runs after JAX has built a copy of this Module from leaves."""
        watch(self)

    def _on_flattened(self) -> None:
        """Runs before JAX or nnx reads the values of this Module."""
        on_tables_read(self)

    def _lookup(
        self,
        ids: Batch,
        weights: Mapping[str, jax.Array] | None,
        scores: Mapping[str, jax.Array] | None,
        train: bool | None,
        counts: Mapping[str, jax.Array] | None = None,
        now: Any = None,
        insert: bool = True,
        touch: bool | None = None,
    ) -> dict[str, jax.Array]:
        """Looks up and pools; a flag that is left out is as for ``jde.Tables``."""
        batch: Batch
        if isinstance(ids, Routed):
            weights = ids.weights if weights is None else weights
            batch, ids = dataclasses.replace(ids, weights={}), ids.ids
            weights = weights_of(self.coll.engine.catalog, ids, weights)
        else:
            ids, weights = batch_of(self.coll.engine.catalog, ids, weights)
            batch = ids
        coll = _fetching_rows_of(self.coll, frozenset(weights))
        if (not self.deterministic) if train is None else train:
            flags = {"insert": insert, "touch": touch is None or touch}
            rows = self._find_or_insert(coll, batch, scores, counts, now, flags)
        elif touch:
            rows = self._find_and_touch(coll, ids, scores, counts, now)
        else:
            rows = self._find(coll, ids)
        return OrderedDict(
            (f, self._pool(coll, f, r, ids[f], weights.get(f))) for f, r in rows.items()
        )

    def _pool(self, coll, feature, rows, ids, weights) -> jax.Array:
        """Pools what ``coll`` fetched id by id and this collection returns pooled."""
        table = self.coll.tables[self.coll.features[feature]]
        if weights is None and coll.tables[table.name] == table:
            return rows
        weights = jnp.ones(rows.shape[:-1]) if weights is None else weights
        return pool(rows, ids, weights, table)

    def _find_or_insert(
        self, coll, ids, scores, counts, now, flags
    ) -> dict[str, jax.Array]:
        before = self._state_to_change()
        now = host_time(coll, before) if now is None else now
        rows, residual, state = coll.lookup(
            before, ids, scores=scores, counts=counts, now=now, **flags
        )
        self._set_state(state)
        return attach(self, coll, residual, rows)

    def _find_and_touch(self, coll, ids, scores, counts, now) -> dict[str, jax.Array]:
        before = self._state_to_change()
        now = host_time(coll, before) if now is None else now
        rows, _, state = coll.find(
            before, ids, touch=True, scores=scores, counts=counts, now=now
        )
        self._set_state(state)
        return rows

    def _state_to_change(self) -> dict[str, TableState]:
        """Returns the state.

        Raises:
          ValueError: what a lookup changes in it would be lost.
        """
        if not all(map(writable, self.tables.values())):
            raise ValueError(_NOT_AN_ARGUMENT.format(kind=type(self).__name__))
        return self._state()

    def _find(self, coll, ids) -> dict[str, jax.Array]:
        before = self._state()
        rows, _, state = coll.find(before, ids)
        # The same tables, threaded on so that a donating jit keeps them in place.
        if all(map(writable, self.tables.values())):
            self._assign(state)
            if (noted := reads.get()) is not None:
                for name in before:
                    noted.note(before[name], state[name])
        return rows


@functools.lru_cache(maxsize=256)
def _fetching_rows_of(coll: Tables, features: frozenset[str]) -> Tables:
    """The same tables, but without pooling where a feature is to be pooled in JAX."""
    if not features:
        return coll
    names = {coll.features[feature] for feature in features}
    tables = (
        dataclasses.replace(t, pooling=None) if name in names else t
        for name, t in coll.tables.items()
    )
    return coll.with_tables(tables)


_NOT_AN_ARGUMENT = (
    "{kind}: this training lookup runs inside a transformation (jit, grad, vmap, "
    "scan, ...) that the model did not enter as an argument, so the rows it inserts "
    "would be lost. Pass the model as an argument through jde.nnx.jit and "
    "jde.nnx.value_and_grad, move the lookup out of jax.vmap or lax.scan (fold batch "
    "axes into the ids instead), or read without inserting: train=False, and no touch."
)
