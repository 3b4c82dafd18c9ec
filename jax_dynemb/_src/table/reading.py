# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The operations of ``Tables`` that read rows and counters. Not for use in jit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from jax_dynemb._src.config import ScoreStrategy
from jax_dynemb._src.engines import States, StatsFuture, shard
from jax_dynemb._src.engines.shard import Rule
from jax_dynemb._src.kept_jit import kept_jit
from jax_dynemb._src.ops import refuse_packed
from jax_dynemb._src.rows import Exported, use_counts
from jax_dynemb._src.table import admission_counts as _admission_counts
from jax_dynemb._src.table import arguments as _arguments
from jax_dynemb._src.table.query import query_of
from jax_dynemb._src.table.row_operations import RowOperations


class Reading(RowOperations):
    """Streams rows to the host, and reads counters, clocks and statistics."""

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
            customized tables are the count or the custom score times 2**32.
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
        _admission_counts.warn_of_losses(self.engine, state, config)
        query = query_of(config, min_score, since, known_keys, chunk_buckets)
        if where is not None:
            state = without_rows(self, state, {name: where})
        return self.engine.export(state, name, query)

    def admission_counts(
        self, state: States, table: str
    ) -> tuple[np.ndarray, np.ndarray]:
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
        _arguments.check_states(self.engine, state, "admission_counts")
        _arguments.check_values(state, "admission_counts")
        config = self.engine.catalog.dynamic_table(table, "admission_counts")
        _arguments.check_sizes(self.engine, state, [config.name], "admission_counts")
        arrays = self.state_name(config.name)
        return _admission_counts.admission_counts(self.engine, state, arrays, config)

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
        counted = {
            name: self.hash_engine.with_own_counters(state, name) for name in dynamic
        }
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
        engine, new = self.engine, dict(state)
        for name, score in scores.items():
            config = engine.catalog.dynamic_table(name, "set_score")
            refuse_packed([config], "set_score")
            arrays = self.state_name(name)
            own = self.hash_engine
            counted, rows = own.with_own_counters(new, name), own.counter_rows(name)
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
        clock = (
            shard.next_score(self.hash_engine.with_own_counters(state, config.name)) - 1
        )
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


@kept_jit(0)
def without_rows(
    coll: RowOperations, state: States, rules: Mapping[str, Rule]
) -> States:
    """Copies the indexes of some tables without the rows that their rules select.

    Args:
      coll: the tables.
      state: its state; not donated, and it keeps the rows.
      rules: by table name.
    """
    return coll.erase_where(state, rules)[1]
