# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The operations of ``Tables`` on rows by slot, id and rule. All may be in jit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax

from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.shard import BucketStats, NewRows, Rule, may_stay_untrained
from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.table import arguments as _arguments
from jax_dynemb._src.table.declared import Declared


class RowOperations(Declared):
    """Reads, stores and removes rows outside lookups: pure functions of the state."""

    def gather(
        self, state: States, slots: Mapping[str, jax.Array]
    ) -> tuple[dict[str, dict[str, jax.Array]], States]:
        """Reads rows by slot: "values", optimizer states and "scores", by table.

        Args:
          state: the tables.
          slots: int32[n] by table, as ``reduce_gradients`` returns them; a slot that
            the table does not have reads zeros.

        Returns:
          float32[n, dim] or [n] (scores: uint32[n, 2]) by table and name; and the
          state, to be carried on.

        Raises:
          TypeError: something else than a dict of slots.
          ValueError: slots of another dtype or number of axes.
        """
        self._check_slots("gather", state, slots)
        return self.hash_engine.gather(state, slots)

    def scatter(
        self,
        state: States,
        slots: Mapping[str, jax.Array],
        rows: Mapping[str, Mapping[str, jax.Array]],
    ) -> States:
        """Writes rows by slot: what ``gather`` returns, or some of it.

        Args:
          state: the tables.
          slots: int32[n] by table, distinct; one that the table does not have writes
            nothing.
          rows: arrays by table and name, in the shapes that ``gather`` returns.

        Raises:
          TypeError: something else than dicts of slots and of rows.
          ValueError: slots of another dtype or number of axes, or rows of other names
            or shapes, or of other tables than the slots.
        """
        self._check_slots("scatter", state, slots)
        tables = self.engine.catalog.tables
        _arguments.check_mapping(rows, "scatter: rows", "table", tables)
        if other := sorted(set(rows) ^ set(slots)):
            raise ValueError(
                f"scatter: slots and rows must be of the same tables; {other} are in "
                "one of them only."
            )
        for table, each in rows.items():
            if not isinstance(each, Mapping):
                raise TypeError(
                    f"scatter: rows of '{table}' must be a dict as gather returns it, "
                    f"not {kind_of(each)}: write {{'values': rows}}."
                )
        may_stay_untrained(slots)
        return self.hash_engine.scatter(state, slots, rows)

    def _check_slots(self, call: str, state: States, slots: Any) -> None:
        _arguments.check_states(self.engine, state, call)
        catalog = self.engine.catalog
        _arguments.check_mapping(slots, f"{call}: slots", "table", catalog.tables)
        for name in slots:
            if name in catalog.tables:  # a name of shared arrays is none
                catalog.dynamic_table(name, call)

    def insert(
        self,
        state: States,
        ids: Mapping[str, Any],
        rows: Mapping[str, Any],
        *,
        optimizer_state: Mapping[str, Mapping[str, Any]] | None = None,
        scores: Mapping[str, Any] | None = None,
        unique_ids: bool = False,
    ) -> States:
        """Stores rows: present ones are overwritten, others inserted.

        A full bucket evicts or refuses as in ``lookup``. Of an id that occurs twice
        the last row is kept.

        Args:
          state: the tables.
          ids: by table name.
          rows: by table name, float[..., dim].
          optimizer_state: by table and state name. Without it a new row starts with
            the initial state, and an old row keeps its own.
          scores: by table, the scores to store, uint64 (numpy) or uint32[..., 2], as
            ``export`` returns them. Without them rows get the clock of this call,
            which is one later than that of the lookup or insert before.
          unique_ids: a promise that no id but padding occurs twice in a call, as among
            the keys of a table or of ``jnp.unique``. It skips the search
            for the last row of an id. Of an id that does occur twice, the stored row
            may have columns of either.

        Returns:
          The new state.

        Raises:
          TypeError: ids as for ``lookup``, or something else than dicts by table.
          ValueError: rows or states of another shape, or of other tables than the ids.
        """
        _arguments.check_states(self.engine, state, "insert")
        batch = _arguments.by_table(self.engine.catalog, ids, "insert")
        new = dict(state)
        _arguments.check_arrays(self.engine, state, batch, "insert")
        _arguments.check_rows(self.engine.catalog, batch, rows, optimizer_state, scores)
        for name, each in batch.items():
            arrays = self.engine.state_name(name)
            states = (optimizer_state or {}).get(name, {})
            score = (scores or {}).get(name)
            given = NewRows(each, rows[name], states, score, unique_ids)
            new[arrays] = self.hash_engine.insert(new[arrays], name, given)
        return new

    def erase(self, state: States, ids: Mapping[str, Any]) -> States:
        """Removes ids; those that are not stored are passed over.

        Args:
          state: the tables.
          ids: by table name, in any form that ``lookup`` takes.

        Returns:
          The new state.

        Raises:
          TypeError: ids as for ``lookup``, or something else than a dict by table.
          ValueError: there is no such table, or it is a tensor train.
        """
        return self._change(state, ids, "erase", self.hash_engine.erase)

    def pin(self, state: States, ids: Mapping[str, Any]) -> States:
        """Keeps the rows of some ids: no eviction and no rule removes them.

        ``erase`` and ``clear`` do. A bucket of 128 pinned rows refuses new ids. Rows
        are counted in ``pinned``; ids that are not stored are passed over.

        Args:
          state: the tables.
          ids: by table name, as for ``erase``.

        Example:
          >>> state = coll.pin(state, {"cat": jde.ids([0, 1])})  # doctest: +SKIP
        """
        return self._change(
            state, ids, "pin", functools.partial(self.hash_engine.pin, pins=True)
        )

    def unpin(self, state: States, ids: Mapping[str, Any]) -> States:
        """Unpins the rows of some ids; they keep their scores.

        ``export(since=...)`` lists such a row once a lookup uses it.

        Args:
          state: the tables.
          ids: by table name, as for ``erase``.
        """
        return self._change(
            state, ids, "unpin", functools.partial(self.hash_engine.pin, pins=False)
        )

    def _change(
        self,
        state: States,
        ids: Mapping[str, Any],
        call: str,
        change: Callable[[TableState, str, Any], TableState],
    ) -> States:
        """Changes the rows of some ids: arrays, table and ids to new arrays."""
        _arguments.check_states(self.engine, state, call)
        batch, new = _arguments.by_table(self.engine.catalog, ids, call), dict(state)
        _arguments.check_arrays(self.engine, state, batch, call)
        for name, each in batch.items():
            arrays = self.engine.state_name(name)
            new[arrays] = change(new[arrays], name, each)
        return new

    def erase_where(
        self, state: States, rules: Mapping[str, Rule], *, dry_run: bool = False
    ) -> tuple[dict[str, jax.Array], States]:
        """Removes the rows that a rule selects, in place, and counts them.

        A pass over the index removes them: no row moves, and nothing is compiled again
        for other numbers of a rule. All devices of a mesh decide as one device would.
        Rows are counted in ``removed_by_rule``. A removed id that comes back starts
        with an initial row and initial optimizer states.

        Call it between an update and the next lookup: a gradient for a removed row is
        a lost update.

        Args:
          state: the tables.
          rules: by table name, ``jde.lifecycle.Rule``.
          dry_run: True removes nothing, and counts what it would remove.

        Returns:
          By table the number of removed rows, uint32[], at most 2**32 - 1; and the new
          state.

        Raises:
          TypeError: something else than a dict of rules.
          ValueError: a table does not keep what a rule compares, or is a tensor train.

        Example:
          >>> rule = jde.lifecycle.Rule(unused_for=1_000_000)  # doctest: +SKIP
          >>> removed, state = coll.erase_where(state, {"cat": rule})  # doctest: +SKIP
        """
        _arguments.check_states(self.engine, state, "erase_where")
        given = _arguments.rules_by_table(self.engine.catalog, rules)
        _arguments.check_flags("erase_where", dry_run=dry_run)
        _arguments.check_sizes(self.engine, state, given, "erase_where")
        removed, new = {}, dict(state)
        for name, rule in given.items():
            arrays = self.engine.state_name(name)
            removed[name], new[arrays] = self.hash_engine.erase_where(
                new[arrays], name, rule, dry_run
            )
        return removed, new

    def bucket_stats(self, state: States) -> dict[str, BucketStats]:
        """Describes how full the buckets of each table are, and how old its rows.

        It reads the index once and changes nothing. On a mesh the numbers are those
        of whole tables; tensor trains have no buckets and are left out.

        Args:
          state: the tables.

        Returns:
          Histograms by table, arrays on the device.

        Example:
          >>> coll.bucket_stats(state)["cat"].age_quantile(0.9)  # doctest: +SKIP
        """
        _arguments.check_states(self.engine, state, "bucket_stats")
        dynamic = self.engine.catalog.dynamic
        _arguments.check_sizes(self.engine, state, dynamic, "bucket_stats")
        return {
            name: self.hash_engine.bucket_stats(state[self.state_name(name)], name)
            for name in dynamic
        }

    def decay(self, state: States, factors: Mapping[str, Any]) -> States:
        """Multiplies the counts of uses of LFU tables, so that old uses weigh less.

        A count becomes max(1, round(count * factor)), half to even. 1 stays 1, so
        ``Rule(count_below=2)`` still means rows seen once. No lookup is counted:
        ``export(since=...)`` does not list rows for their new counts.

        Args:
          state: the tables.
          factors: by table name, a float from 0 to 1, or float32[] where it is traced.

        Raises:
          TypeError: a factor is no number.
          ValueError: a factor is out of range, or a table counts no uses.
        """
        _arguments.check_states(self.engine, state, "decay")
        given = _arguments.factors_by_table(self.engine.catalog, factors)
        _arguments.check_sizes(self.engine, state, given, "decay")
        new = dict(state)
        for name, factor in given.items():
            arrays = self.engine.state_name(name)
            new[arrays] = self.hash_engine.decay(new[arrays], name, factor)
        return new

    def clear(self, state: States) -> States:
        """Removes all rows; counters start again, seeds and clocks stay.

        Args:
          state: the tables.
        """
        _arguments.check_states(self.engine, state, "clear")
        _arguments.check_arrays(self.engine, state, self.engine.catalog.tables, "clear")
        dynamic = self.engine.catalog.dynamic
        _arguments.check_sizes(self.engine, state, dynamic, "clear")
        return self.engine.clear(state, tuple(self.engine.catalog.tables))


def insert_kept(
    coll: RowOperations,
    name: str,
    state: TableState,
    ids: Any,
    rows: Any,
    optimizer_state: Mapping[str, Any],
    scores: Any = None,
    *,
    unique_ids: bool = False,
) -> TableState:
    """Stores rows that a table has held, also those that are not finite.

    ``insert`` skips such rows where the table says so. A copy must not: an overflow is
    in the table that the rows come from, and the copy would lack the row.

    Args:
      coll: the tables.
      name: of the table.
      state: its arrays.
      ids: as for ``insert``, and so are the others, but of this table.
      rows: likewise.
      optimizer_state: by state name.
      scores: likewise.
      unique_ids: likewise.
    """
    batch = _arguments.by_table(coll.engine.catalog, {name: ids}, "insert")
    given = NewRows(
        batch[name], rows, optimizer_state, scores, unique_ids, are_kept=True
    )
    return coll.hash_engine.insert(state, name, given)
