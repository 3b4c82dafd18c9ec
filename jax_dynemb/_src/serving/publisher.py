# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Publishes what a training program changes, behind its steps."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax

from jax_dynemb._src.engines import States
from jax_dynemb._src.files.integrity import (
    Channel,
    FolderChannel,
    HistoryLostError,
    Part,
    as_channel,
    newest,
)
from jax_dynemb._src.files.live import collection_of
from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.ops import settled
from jax_dynemb._src.serving.capture import (
    Captured,
    Changes,
    capture,
    changes_of,
    continues,
    copied_counters,
    copied_dense,
    hash_tables,
    mark_of,
    next_copies,
)
from jax_dynemb._src.serving.compaction import (
    Compaction,
    Outcome,
    SnapshotRule,
    outcome_of,
)
from jax_dynemb._src.serving.job import Job, Said
from jax_dynemb._src.serving.options import check_here, check_options
from jax_dynemb._src.serving.parts import (
    compact,
    write_segment,
    write_snapshot,
)
from jax_dynemb._src.serving.room import Room
from jax_dynemb._src.serving.row_copies import DeviceCopies, ShardTypes, shard_types
from jax_dynemb._src.serving.sending import Sender
from jax_dynemb._src.table import Mark, Tables, check_sizes, check_values


class Publisher:
    """Publishes tables in a folder, or over a network, while they are trained.

    A call of ``step`` starts copies on the device and returns. A thread waits for them,
    and writes a segment with the rows that changed and the keys that were removed.
    Subscribers apply whole segments in order, so what they serve is one moment of the
    training. If the thread is behind, a call does nothing, and the next segment has
    more rows.

    A snapshot holds whole tables: a subscriber begins with one. The first one is
    written in the call that begins a history, which waits for it. Later ones are made
    of the snapshot before and its segments, by a thread of their own where ``to`` is a
    folder or a ``Listener``.

    Args:
      coll: the tables, each with ``TableConfig(log_removed=...)``. Of several processes
        each has a publisher, with a folder or channel of its own. All make the same
        calls, and subscribers take a list of the folders.
      to: a folder, on a disk that subscribers see; made if it is not there. Or a
        channel: ``Redis``, ``Listener`` or ``Bucket``.
      every: steps between two segments.
      dtype: of published rows: "float32", "bfloat16", or "int8" with a scale a row.
      snapshot_every: segments between two snapshots; None: when segments hold twice
        as many rows as the tables.
      keep: snapshots that stay, with the segments behind the oldest of them.
      patience: seconds for which the thread tries to reach a channel that is away,
        while calls do nothing. Then the next call raises ConnectionError, and the one
        after that tries again.

    Raises:
      ConnectionError: the channel is away.
      RuntimeError: another publisher holds the folder or the channel.
      ValueError: a table cannot be published, with what to do.

    Example:
      >>> with jde.serving.Publisher(coll, to=folder) as publisher:  # doctest: +SKIP
      ...     for batch in batches:
      ...         state = train_step(state, batch)
      ...         publisher.step(state)
    """

    def __init__(
        self,
        coll: Tables,
        to: str | os.PathLike[str] | Channel,
        *,
        every: int = 1,
        dtype: str = "float32",
        snapshot_every: int | None = None,
        keep: int = 2,
        patience: float = 600.0,
    ):
        """Takes the lease; nothing is written before the first ``step``."""
        check_options(coll, every, dtype, snapshot_every, keep)
        self._coll, self._dtype, self._every = coll, dtype, every
        self._snapshot_every, self._keep = snapshot_every, keep
        self._channel = as_channel(to)
        self._channel.take()
        self._sender = Sender(self._channel, patience)
        self._calls = self._skipped = self._segments = 0
        self._rooms = {name: Room() for name in hash_tables(coll)}
        self._shards: list[ShardTypes] = []  # of the state, until ``use``
        self._copies: list[DeviceCopies] | None = None  # of the next segment
        self._marks: dict[str, Mark] | None = None
        self._snapshots = SnapshotRule(snapshot_every)
        self._base: Part | None = None
        self._last: Part | None = None
        self._number = 0  # of the newest part that any process has, or writes
        self._has_looked = False
        self._job = Job() if jax.process_count() > 1 else None
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = (
            queue.SimpleQueue()
        )
        self._compaction = Compaction()
        self._idle = threading.Event()
        self._idle.set()
        self._error: BaseException | None = None
        self._snapshot_due = self._skipped_rows = False
        self._thread = threading.Thread(
            target=self._run, name="jax_dynemb.publisher", daemon=True
        )
        self._thread.start()

    def step(
        self, state: States, dense: Any = None, *, step: int | None = None
    ) -> bool:
        """Publishes a moment, if it is time. Call it between an update and a lookup.

        Args:
          state: the tables after an update; the next step may donate it at once.
          dense: a pytree of arrays of the same moment, such as the dense parameters.
          step: what to call the moment; the number of this call if None.

        Returns:
          Whether a segment or a snapshot of this moment is published, or on its way.

        Raises:
          OSError, ValueError: of the thread, by the next call; the folder stays whole.
        """
        if self._job is None:  # processes of a job must come to the exchange first
            self._raise_error()
        self._calls += 1
        if (self._calls - 1) % self._every:
            return False
        if self._job is None and self._has_looked and not self._idle.is_set():
            self._skipped += 1  # at once: most calls end here, if steps are short
            return False
        result = self._publish(state, dense, self._calls if step is None else step)
        self._raise_error()
        return result

    def flush(
        self, state: States | None = None, dense: Any = None, *, step: int | None = None
    ) -> None:
        """Waits until everything is written; with a state, that moment too.

        Args:
          state: as for ``step``; None: what was given to ``step``, unless it had more
            changes than the buffers or the log of removed keys hold. A later call with
            a state writes those.
          dense: likewise.
          step: likewise.
        """
        self._wait()
        if state is not None:
            for _ in range(64):  # buffers double until they have room
                self._tell()
                self._publish(state, dense, self._calls if step is None else step)
                self._wait()
                if not self._is_behind():
                    return

    def _is_behind(self) -> bool:
        """Whether a moment that was given is not written yet, by all processes."""
        behind = self._skipped_rows or self._snapshot_due
        if self._job is None:
            return behind
        self._job.send(Said(behind, False, 0))
        behind = self._job.read().busy
        self._tell()
        return behind

    def use(self, coll: Tables) -> None:
        """Goes on with the tables that ``Tables.grow`` returned.

        Args:
          coll: of the same names.

        Raises:
          ValueError: other tables.
        """
        self._wait()
        check_options(coll, self._every, self._dtype, self._snapshot_every, self._keep)
        if set(coll.tables) != set(self._coll.tables):
            raise ValueError(
                f"Publisher.use takes the tables {sorted(self._coll.tables)}, not "
                f"{sorted(coll.tables)}: publish others into another folder."
            )
        self._coll, self._shards = coll, []

    def stats(self) -> dict[str, int]:
        """Counts calls, segments, calls that found the thread busy, and outages.

        ``number`` is that of the newest part; ``outages`` counts how often the channel
        was found away.
        """
        number = 0 if self._last is None else self._last.number
        return {
            "calls": self._calls,
            "segments": self._segments,
            "skipped": self._skipped,
            "outages": self._sender.outages,
            "number": number,
        }

    def close(self) -> None:
        """Waits for the thread, but for no channel that is away; lets go of it."""
        if self._thread.is_alive():
            self._sender.stop_waiting()
            self._waiting.put(None)
            self._thread.join()
        self._channel.close()
        self._raise_error()

    def __enter__(self) -> Publisher:
        """Returns itself."""
        return self

    def __exit__(self, *_: Any) -> None:
        """Closes it."""
        self.close()

    # ---- in the thread of the caller ---------------------------------------------

    def _publish(self, state: States, dense: Any, step: int) -> bool:
        collection_of("Publisher.step", self._coll, state)
        check_values(state, "Publisher.step")
        try:
            tables = hash_tables(self._coll)
            check_sizes(self._coll.engine, state, tables, "Publisher.step")
        except ValueError as error:
            raise ValueError(f"{error} After growth, publisher.use(coll).") from None
        if not is_whole(step) or step < 0:
            raise ValueError(f"Publisher: step={step!r} must be a whole number from 0.")
        step = int(step)
        settled(state)
        try:
            return self._publish_as_agreed(state, dense, step)
        finally:
            self._tell()

    def _publish_as_agreed(self, state: States, dense: Any, step: int) -> bool:
        if not self._has_looked:
            self._marks = self._published_marks(state)
            self._has_looked = True
            self._tell()
        said = self._said() if self._job is None else self._job.read()
        if said.busy:
            self._skipped += 1
            return False
        self._number = max(self._number, said.number)
        if said.due:
            self._begin(state, dense, step)
            return True
        assert self._marks is not None
        if not self._shards or self._copies is None:
            self._shards = shard_types(self._coll, state)
            self._make_copies()
        assert self._copies is not None
        captured = capture(self._coll, state, self._copies, step, dense)
        self._number += 1
        self._hand_over(partial(self._write, captured, self._number))
        return True

    def _said(self) -> Said:
        busy = not self._idle.is_set()
        # While the thread writes, its numbers may change.
        due = not busy and (self._marks is None or self._snapshot_due)
        return Said(busy, due, self._number)

    def _tell(self) -> None:
        """Tells the other processes how far this one is."""
        if self._job is not None:
            self._job.send(self._said())

    def _hand_over(self, work: Callable[[], None]) -> None:
        self._idle.clear()
        self._waiting.put(partial(self._do_and_tell, work))

    def _published_marks(self, state: States) -> dict[str, Mark] | None:
        """Reads where the channel ends; None unless the state comes out of that."""
        now = copied_counters(
            self._coll, state
        )  # all processes do it, whatever they find
        self._base, last = newest(self._channel)
        self._last = last
        self._number = max(self._number, self._highest())
        if last is not None and last.number < self._highest():
            return None  # parts behind it do not continue it
        if last is None or set(last.tables) != set(hash_tables(self._coll)):
            return None
        marks = {n: Mark.from_json(each["mark"]) for n, each in last.tables.items()}
        for name, mark in marks.items():
            if not continues(name, mark, mark_of(self._coll, now, name, mark)):
                return None
        return marks

    def _begin(self, state: States, dense: Any, step: int) -> None:
        """Begins a history with a snapshot of this state, which is read here."""
        self._compaction.wait()  # of the history before
        self._shards = shard_types(self._coll, state)
        coll, now = self._coll, copied_counters(self._coll, state)
        for name in coll.tables:
            check_here(coll, state, name)
        marks = {name: mark_of(coll, now, name, None) for name in hash_tables(coll)}
        part = write_snapshot(
            self._channel,
            coll,
            state,
            self._number + 1,
            marks,
            self._dtype,
            step,
            copied_dense(coll, state, dense),
        )
        self._number += 1
        self._hand_over(partial(self._send_first, part, marks))
        if isinstance(self._channel, FolderChannel):
            self._wait()  # it is there already

    def _wait(self) -> None:
        self._idle.wait()
        self._compaction.wait()
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    # ---- in the thread of its own ------------------------------------------------

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            work()
        if self._compaction.is_running and (last := self._waiting.get()) is not None:
            last()

    def _do_and_tell(self, work: Callable[[], None]) -> None:
        self._do(work)
        self._idle.set()

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except HistoryLostError:
            self._lost()
        except BaseException as error:  # noqa: BLE001 (the next call raises it)
            self._error = error

    def _lost(self) -> None:
        """Lets the next call begin a history, behind all numbers that are there."""
        self._snapshot_due = True
        with contextlib.suppress(ConnectionError):  # then it is refused, and comes here
            self._number = max(self._number, self._highest())

    def _highest(self) -> int:
        kinds = ("snapshot", "segment")
        return max(0, *(n for kind in kinds for n in self._channel.numbers(kind)), 0)

    def _send_first(self, part: Part, marks: dict[str, Mark]) -> None:
        self._sender.put(part, None)
        self._base = self._last = part
        self._marks, self._snapshot_due = marks, False
        self._make_copies()
        self._snapshots.rows = 0
        self._sender.remove_old(self._keep)

    def _write(self, captured: Captured, number: int) -> None:
        assert self._marks is not None and self._last is not None
        found: dict[str, Changes] = {}
        self._skipped_rows = False
        for name, mark in self._marks.items():
            changes = changes_of(self._coll, captured, name, mark, self._dtype)
            if changes is None:
                self._snapshot_due = True
                return
            if isinstance(changes, int):
                self._rooms[name].overflowed(changes)
                self._skipped_rows = True
            else:
                found[name] = changes
        if self._skipped_rows:
            self._make_copies()
            return  # the marks stay, so the next segment has these rows
        before = self._last
        part = write_segment(
            self._channel, number, before, captured, found, self._dtype
        )
        self._sender.put(part, before.token)
        self._last = part
        self._marks = {name: changes.mark for name, changes in found.items()}
        self._segments += 1
        for name, changes in found.items():
            self._snapshots.rows += len(changes.order)
            self._rooms[name].held(changes.most)
        self._make_copies()
        if self._wants_snapshot(found) and not self._compaction.is_running:
            self._compact()

    def _make_copies(self) -> None:
        """Makes what copies the next segment, compiled so that no step waits for it."""
        assert self._marks is not None
        rooms = {name: room.rows for name, room in self._rooms.items()}
        before = [each.tables for each in self._copies or ()]
        self._copies = next_copies(
            self._coll, self._shards, self._marks, rooms, self._dtype
        )
        if [each.tables for each in self._copies] != before:
            for each in self._copies:
                each.prepare()

    def _wants_snapshot(self, found: Mapping[str, Changes]) -> bool:
        assert self._base is not None and self._last is not None
        rows = sum(changes.rows for changes in found.values())
        return self._snapshots.is_due(self._last.number - self._base.number, rows)

    def _compact(self) -> None:
        """Makes a snapshot of the one before and its segments.

        Segments go on meanwhile, where the channel takes a snapshot behind them.
        """
        assert self._base is not None and self._last is not None
        work = partial(
            compact, self._channel, self._coll, self._base, self._last, self._dtype
        )
        take = partial(self._take_compacted, rows=self._snapshots.rows)
        if self._channel.takes_late_snapshots:
            self._compaction.start(
                work,
                lambda done: self._waiting.put(partial(self._compacted, take, done)),
            )
        else:
            take(outcome_of(work))

    def _compacted(self, take: Callable[[Outcome], None], done: Outcome) -> None:
        self._do(partial(take, done))
        self._compaction.ended()

    def _take_compacted(self, done: Outcome, rows: int) -> None:
        assert self._last is not None
        try:
            part = done()
            self._sender.put(part, self._last.token)
        except ConnectionError:
            return  # the segments are there, so the next one may do it
        except FileNotFoundError as error:
            raise HistoryLostError(str(error)) from error
        self._base = part
        self._snapshots.rows -= rows
        self._sender.remove_old(self._keep)
