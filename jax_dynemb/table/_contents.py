# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What is in the tables: rows by id and by slot, scores, counters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from jax_dynemb.ops import _rows
from jax_dynemb.ops._layout import prepare
from jax_dynemb.sharding import _collection as _on_mesh
from jax_dynemb.sharding._hosts import count_rows, exchange_stats
from jax_dynemb.sharding._placement import placement_of
from jax_dynemb.sharding._stacks import states_of
from jax_dynemb.table import (
    _chunks,
    _columns,
    _export,
    _given,
    _insert,
    _scores,
    _stats,
)
from jax_dynemb.table._declared import Declared, States
from jax_dynemb.table._stats import counter_values


class Contents(Declared):
    """Reads and writes single rows, and says what there is."""

    def gather(
        self, state: States, slots: Mapping[str, jax.Array]
    ) -> tuple[dict[str, dict[str, jax.Array]], States]:
        """Rows by slot: "values", optimizer states and "scores", by table.

        Args:
          state: the tables.
          slots: int32[n] by table, as ``reduce_gradients`` returns them; a slot that
            the table does not have reads zeros.

        Returns:
          float32[n, dim] or [n] (scores: uint32[n, 2]) by table and name; and the
          state, to be carried on.

        Raises:
          ValueError: slots of another dtype or number of axes.
        """
        if self.placement is not None:
            return _on_mesh.gather(self, state, slots)
        rows, new = {}, dict(state)
        for name, each in slots.items():
            own = self.local_config(name)
            rows[name], new[own.state_name] = _rows.gather(
                own, new[own.state_name], each
            )
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
          slots: int32[n] by table, distinct; one that the table does not have writes
            nothing.
          rows: arrays by table and name, in the shapes that ``gather`` returns.

        Raises:
          ValueError: slots of another dtype or number of axes, or rows of other names
            or shapes.
        """
        if self.placement is not None:
            return _on_mesh.scatter(self, state, slots, rows)
        new = dict(state)
        for name, each in slots.items():
            own = self.local_config(name)
            place = own.state_name
            new[place] = _rows.scatter(own, new[place], each, rows[name])
        return new

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
          optimizer_state: by table and state name; a new row starts with the initial
            state where it is not given, and an old row keeps its own.
          scores: by table, the scores to store, uint64 (numpy) or uint32[..., 2], as
            ``export`` returns them. Without them rows get the clock of this call,
            which is one later than that of the lookup or insert before.
          unique_ids: a promise that no id comes twice in a call, as the keys of a
            table, of ``jnp.unique`` or of a file do; padding may. Then nobody has to
            look for the last row of an id. Of one that does come twice, the stored
            row may have columns of either.
        """
        _given.check_states(self, state, "insert")
        new = dict(state)
        for name, each in _given.by_table(self, ids, "insert").items():
            config, place = self._table(name), self.state_name(name)
            if name not in rows:
                raise ValueError(f"insert: rows of table '{name}' are missing")
            given = (
                each,
                rows[name],
                (optimizer_state or {}).get(name, {}),
                (scores or {}).get(name),
                unique_ids,
            )
            if self.placement is not None:
                new[place] = _on_mesh.insert(self, new[place], config, *given)
            else:
                new[place] = _insert.insert(self.local_config(name), new[place], *given)
        return new

    def erase(self, state: States, ids: Mapping[str, Any]) -> States:
        """Removes ids; those that are not stored are passed over.

        Args:
          state: the tables.
          ids: by table name.
        """
        _given.check_states(self, state, "erase")
        new = dict(state)
        for name, each in _given.by_table(self, ids, "erase").items():
            config, place = self._table(name), self.state_name(name)
            if self.placement is not None:
                new[place] = _on_mesh.erase(self, new[place], config, each)
                continue
            _, given = prepare(config, name, each)
            new[place] = _rows.erase(self.local_config(name), new[place], given.ids)
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
        _given.check_states(self, state, "export")
        _given.check_values(state, "export")
        given = (min_score, since, known_keys, chunk_buckets)
        if self._table(table).sharding == "column_wise" and self.placement is not None:
            return _columns.export_columns(self._shards(state, table), *given)
        return _export.export(self._parts(state, table), *given)

    def _parts(self, state: States, table: str) -> _export.Parts:
        """The table in pieces that hold all keys together, each once."""
        if self.placement is None:
            own = self.local_config(table)
            return [(own, state[own.state_name])]
        shards = self._shards(state, table)
        return shards[:1] if self._table(table).sharding == "column_wise" else shards

    def _shards(self, state: States, table: str) -> _export.Parts:
        config = self._table(table)
        return _on_mesh.local_shards(self, config, state[self.state_name(table)])

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
        _given.check_values(state, "apply_delta")
        config, place = self._table(table), self.state_name(table)
        new = state[place]
        for chunk in delta:
            if chunk.removed is not None:
                new = _chunks.erase_keys(self, config.name, new, chunk.removed)
            new = _chunks.insert_chunks(self, config.name, new, [chunk])
        return state | {place: new}

    def get_score(self, state: States) -> dict[str, int]:
        """By table, the clock that its next lookup will have: a mark for ``export``.

        The clock counts training lookups, also those that ``insert`` makes: one a
        call and table. ``find``, ``erase`` and updates leave it alone. The clock of a
        timestamp table is the time in nanoseconds.

        Args:
          state: the tables.
        """
        _given.check_states(self, state, "get_score")
        _given.check_values(state, "get_score")
        return {n: _scores.next_score(self.counted(state, n)) for n in self.tables}

    def set_score(self, state: States, scores: Mapping[str, int]) -> States:
        """Lets the next lookup of some tables have this clock, such as a global step.

        Args:
          state: the tables.
          scores: by table; those that count lookups only, and never backwards.

        Raises:
          ValueError: the table has another clock, or it is ahead already.
        """
        _given.check_values(state, "set_score")
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

        rows, capacity, load_factor; fullest_bucket and mean_bucket, rows of the
        fullest bucket and on average (see concepts/tables.md); since the start:
        inserted and evicted rows, refused ids (no place was left), lost_updates
        (gradients whose row had left), step (updates) and lookups.

        The rows of buckets are counted when this is called: devices read 128 bytes of
        each bucket, one sixteenth of the index, and nothing of the rows.

        Raises:
          RuntimeError: a table with ``on_full="error"`` has refused ids.
          TypeError: inside jit, where there are no numbers yet.
        """
        _given.check_states(self, state, "stats")
        _given.check_values(state, "stats")
        result: dict[str, int | float] = {}
        placement = None if self.placement is None else placement_of(self)
        if placement is None:
            fullest = _stats.fullest_on_one_device(self._placed.values(), state)
        else:
            counted = count_rows(placement, states_of(state, placement.stacks))
            fullest = _stats.fullest_on_mesh(placement, counted)
        for name, config in self.tables.items():
            counters = counter_values(self.counted(state, name))
            result |= _stats.stats(config, counters, fullest[name])
            if placement is not None:
                result |= exchange_stats(placement, config, counted, counters)
        return result
