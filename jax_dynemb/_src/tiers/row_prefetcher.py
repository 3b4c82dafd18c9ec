# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The prefetcher that moves rows between tables and their stores while steps run."""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from typing import Any, Self

import jax
import numpy as np

from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.shard import words_of
from jax_dynemb._src.pipeline import Prefetched
from jax_dynemb._src.stores import Store
from jax_dynemb._src.table import Tables, check_values
from jax_dynemb._src.tiers import device as _device
from jax_dynemb._src.tiers.batches import Batch, Fed, prepared, table_keys
from jax_dynemb._src.tiers.mover import Job
from jax_dynemb._src.tiers.shared import Shared, shared_by
from jax_dynemb._src.tiers.stores import (
    check_first,
    check_moment,
    check_sizes,
    check_stores,
    open_stores,
    tables_with_stores,
)
from jax_dynemb._src.tiers.together import places_of
from jax_dynemb._src.tiers.traffic import Offer

_COUNTED = (
    "departed",
    "returned",
    "wanted",
    "hits",
    "no_room",
    "refused",
    "bytes_down",
    "bytes_up",
)


class RowPrefetcher:
    """Yields batches whose rows are in their tables.

    ``jde.tiers.prefetch_rows`` makes it.

    Attributes:
      stores: by table name.
    """

    def __init__(
        self,
        coll: Tables,
        batches: Iterable[Any],
        fed: Fed | None,
        *,
        depth: int,
        stores: Mapping[str, Store] | None,
        sharding: Any,
        waiting_megabytes: float,
        evaluate: bool,
    ):
        """Opens stores and starts the threads; the arguments have been checked."""
        tables = tables_with_stores(coll)
        self._coll, self._depth = coll, depth
        self._opened = open_stores(coll) if stores is None else None
        self.stores: Mapping[str, Store] = self._opened or dict(stores or {})
        check_stores(coll, self.stores)
        found = shared_by(self.stores)
        waiting = waiting_megabytes * 1e6
        self._shared = found or Shared(tables, self.stores, waiting, places_of(coll))
        self._owns_shared = found is None
        self._is_beside = evaluate or self._shared.trains
        if not self._is_beside:
            self._shared.begin(self._held, depth)
        places = self._shared.places
        make = functools.partial(prepared, coll, tables, sharding, places, fed)
        self._batches: Prefetched[Batch] = Prefetched(batches, 1, make)
        self._coming: deque[tuple[Batch, Future[dict[str, Offer]]]] = deque()
        self._taken: deque[tuple[Any, Future[Any]]] = deque()  # rings to use again
        self._new: list[Batch] = []  # read, and not yet on their way
        self._last: Batch | None = None
        self._said: tuple[dict[str, Offer], Any] = {}, None  # to the other processes
        self._ended = self._closed = False
        self._unread: Exception = StopIteration()  # what follows the last batch
        self._waited = 0.0

    def next(self, state: States) -> tuple[Any, States]:
        """Brings the rows of the next batch into the tables.

        Call ``lookup`` once with the ids before the next call. It waits for the device
        and for the stores only if they are slower than the steps.

        Args:
          state: the tables; donated.

        Returns:
          The ids as a lookup takes them (or the tuple that begins with them), and the
          new state.

        Raises:
          StopIteration: there are no more batches; the state is as it was.
          RuntimeError: the prefetcher is closed, or a store has no room for rows.
          ValueError: the state is of tables in another size, see ``use``; or it does
            not come out of the state that ``next`` returned last. One of the next
            calls may raise that, since no call waits for it. The stores are as they
            were.
          Exception: what the iterator or a store raised. The state is as it was, but
            at the first call. After an error of a store go on from a checkpoint: rows
            that had departed may not be in the store.
        """
        check_values(state, "prefetcher.next")
        try:
            return self._next(state)
        except Exception:
            self._shared.note_lost(self._coll, state)
            raise

    def _next(self, state: States) -> tuple[Any, States]:
        self._check()
        check_sizes(self._coll, self.stores, state)
        self._shared.check_lost(self._coll, state)
        if self._is_beside:
            return self._next_beside(state)
        coll, shared, first = self._coll, self._shared, self._last is None
        if first or shared.places.is_alone:  # the end of a call has read them elsewhere
            self._read(self._depth + 1 if first else 1)
        rows = self._rows_of_next(state)
        if not self._coming and not self._new:
            raise self._unread
        if first:
            self._check_first(state)
        # From here on the state is donated: what can fail stands above.
        new, self._new = self._new, []
        if shared.was_beside:  # it may have brought up or made rows of coming batches
            state, shared.was_beside = shared.hold_coming(coll, state), False
        for at, batch in enumerate(new, len(self._coming)):
            state = _device.hold(coll, state, batch.held, at + 1)
        following = min(self._depth, len(self._coming) + len(new))
        if self._last is not None and following:  # its lookup has made rows since
            state = _device.hold(coll, state, self._last.held, following)
        state = self._submit(state, new)
        if first:
            rows = shared.result_of_all(state, self._coming[0][1])
        state = shared.insert(coll, state, rows)
        self._last, _ = self._coming.popleft()
        shared.first += 1
        if not shared.places.is_alone:
            self._read(1)
            self._say(state)
        return self._last.given, state

    def insert(
        self,
        state: States,
        ids: Mapping[str, Any],
        rows: Mapping[str, Any],
        *,
        optimizer_state: Mapping[str, Mapping[str, Any]] | None = None,
        scores: Mapping[str, np.ndarray] | None = None,
    ) -> States:
        """Writes rows as ``Tables.insert``, of ids whose rows are below as well.

        Those come up first, so the result is that of a table with room for every row.
        Call it between steps. It waits for the device and for the stores.

        Args:
          state: the tables; donated.
          ids: by table name, on the host: as a batch has them.
          rows: as for ``Tables.insert``.
          optimizer_state: likewise.
          scores: by table, uint64[...].

        Returns:
          The new state. An id without room in its bucket is refused, and its row stays
          below as it was; ``refused`` of ``Tables.stats`` counts it.

        Raises:
          RuntimeError: the prefetcher is closed.
          TypeError, ValueError: as ``Tables.insert``; the state is as it was.
          Exception: what a store raised.
        """
        keys, held, on_device = self._keys_of(state, ids, "prefetcher.insert")
        words = {name: words_of(each) for name, each in (scores or {}).items()}
        write = functools.partial(
            _device.write, self._coll, optimizer_state=optimizer_state, scores=words
        )
        # Raises what is wrong before the state is donated.
        jax.eval_shape(write, state, on_device, dict(rows))
        state, _ = self._shared.bring_up(self._coll, state, keys, held)
        return write(state, on_device, dict(rows))

    def erase(self, state: States, ids: Mapping[str, Any]) -> States:
        """Removes rows as ``Tables.erase``, in the tables and below.

        Call it between steps. It waits for the device and for the stores.

        Args:
          state: the tables; donated.
          ids: by table name, on the host: as a batch has them.

        Returns:
          The new state.

        Raises:
          RuntimeError: the prefetcher is closed.
          Exception: what a store raised.
        """
        keys, _, on_device = self._keys_of(state, ids, "prefetcher.erase")
        state, departed = self._coll.take_departed(state)
        self._done(state, departed=departed, erased=keys)
        return _device.erase(self._coll, state, on_device)

    def fetch(
        self, state: States, ids: Mapping[str, Any]
    ) -> tuple[States, dict[str, int]]:
        """Brings the rows of some ids into the tables, to be found there.

        For ``Tables.find``, and for ``lookup(touch=False, insert=False)``, which read
        the tables alone. No row that a coming batch needs departs for it. Call it
        between steps. It waits for the device and for the stores.

        Args:
          state: the tables; donated.
          ids: by table name, on the host: as a batch has them.

        Returns:
          The new state; and by table, how many distinct ids have a row below that found
          no room in its bucket.

        Raises:
          RuntimeError: the prefetcher is closed.
          Exception: what a store raised.
        """
        keys, held, _ = self._keys_of(state, ids, "prefetcher.fetch")
        state, offers = self._shared.bring_up(self._coll, state, keys, held)
        return state, {name: offer.absent() for name, offer in offers.items()}

    def use(self, coll: Tables) -> None:
        """Goes on with the same tables in another size, which ``Tables.grow`` made.

        Args:
          coll: what ``grow`` returned; give ``next`` its state from now on.

        Raises:
          ValueError: they are other tables.
        """
        if coll is self._coll:
            return
        check_stores(coll, self.stores)
        self._coll = coll
        self._taken.clear()  # a mesh may cut the larger tables otherwise

    def drain(self, state: States) -> States:
        """Puts the rows that have departed into the stores, and waits for it.

        Every row is in a table or in its store then.

        Args:
          state: the tables.

        Returns:
          The new state.

        Raises:
          RuntimeError: the prefetcher is closed.
          Exception: what a store raised.
        """
        self._check()
        check_values(state, "prefetcher.drain")
        state, departed = self._coll.take_departed(state)
        self._done(state, departed=departed)
        return state

    def commit(self, state: States, tag: str, step: int | None = None) -> None:
        """Commits every store, with the rows that have departed so far.

        ``jde.checkpoint.save(..., prefetcher=...)`` calls it.

        Args:
          state: the tables; they stay as they are.
          tag: of the commit.
          step: of the training.

        Raises:
          RuntimeError: the prefetcher is closed, or a store has no room for a row.
          Exception: what a store raised.
        """
        self._check()
        departed = self._coll.departed(state)
        self._done(state, departed=departed, tag=tag, step=step)

    def stats(self) -> dict[str, int | float]:
        """Counts what has moved; waits for nothing.

        By "table/name", since the start: rows ``departed`` into the store and
        ``returned``. Distinct ids ``wanted`` by batches, and ``hits``, those with a row
        below. Rows that found ``no_room`` in their bucket, and stayed in the store.
        Puts of rows that the store ``refused``. ``bytes_down`` and ``bytes_up``.

        Now: rows ``waiting`` in memory, and ``queue``, batches whose rows are on their
        way. ``seconds_waited`` is the time that ``next`` has waited for the thread.
        """
        result: dict[str, int | float] = {}
        for name, traffic in self._shared.mover.traffic.items():
            result |= {f"{name}/{what}": traffic.counts[what] for what in _COUNTED}
            result[f"{name}/waiting"] = len(traffic.waiting)
        queue = sum(not future.done() for _, future in self._coming)
        return result | {"queue": queue, "seconds_waited": self._waited}

    def close(self) -> None:
        """Ends the threads, once the rows that were taken are in the stores.

        Rows that have departed since the last ``next`` stay in the state. A new
        prefetcher with the same stores takes them from there.

        Raises:
          Exception: what a store raised and no call has raised yet.
        """
        if self._closed:
            return
        self._closed = True
        self._batches.close()
        shared, last = self._shared, None
        if not shared.is_closed:
            last = shared.send(Job(shared.first))
        if not self._is_beside:
            shared.end()
        if self._owns_shared:
            shared.close()
        if self._opened is not None:
            self._opened.close()
        if last is not None and not shared.raised:
            shared.result(last)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            self.close()
        except BaseException:
            if kind is None:  # else the first error says more
                raise

    def _done(self, state: States, **what: Any) -> None:
        job = Job(self._shared.first, **what)
        self._shared.result_of_all(state, self._shared.send(job))

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError(
                "this prefetcher is closed; make another one, or call it within `with`."
            )
        self._shared.check()

    def _read(self, count: int) -> None:
        """Reads until there are so many new batches; a failed call leaves them."""
        while len(self._new) < count and not self._ended:
            try:
                self._new.append(next(self._batches))
            except StopIteration:
                self._ended = True
            except Exception as error:  # raised where its batch would have come
                self._ended, self._unread = True, error

    def _rows_of_next(self, state: States) -> dict[str, Offer]:
        """Returns the rows of the batch that comes next, if it is on its way.

        Of several processes it waits for what all of them have said, and takes no more
        new batches than each of them has.
        """
        if self._shared.places.is_alone:
            return self._waited_for()
        if self._last is None:
            self._say(state)
        rows, sent = self._said
        failed, fewest, *sizes = self._shared.places.read(sent)
        if failed:
            self._shared.fail()
        self._cut(-fewest)
        return self._shared.ready(rows, sizes)

    def _waited_for(self) -> dict[str, Offer]:
        if not self._coming:
            return {}
        begin = time.perf_counter()
        rows = self._shared.result(self._coming[0][1])
        self._waited += time.perf_counter() - begin
        return rows

    def _say(self, state: States) -> None:
        """Tells the other processes what is read, and how many rows come next."""
        rows, failed = {}, False
        try:
            rows = self._waited_for()
        except Exception:  # the next call raises it, in all of them
            failed = True
        failed, *sizes = self._shared.numbers(rows, failed)
        numbers = [failed, -len(self._new), *sizes]
        self._said = rows, self._shared.places.send(state, numbers)

    def _cut(self, count: int) -> None:
        """Drops new batches behind the last one of another process."""
        if count < len(self._new):
            self._new, self._ended = self._new[:count], True

    def _check_first(self, state: States) -> None:
        together = functools.partial(self._shared.places.check, state)
        places = {n: getattr(x, "place", None) for n, x in self.stores.items()}
        self._shared.places.check_apart(state, places)
        check_first(self._coll, self.stores, state, together)

    def _next_beside(self, state: States) -> tuple[Any, States]:
        """Brings up the rows of a batch at once, and holds none."""
        self._read(1)
        places = self._shared.places
        self._cut(-places.most(state, [-len(self._new)])[0])
        if not self._new:
            raise self._unread
        if self._last is None and self._owns_shared:
            together = functools.partial(places.check, state)
            check_moment(self._coll, self.stores, state, together)
        batch = self._last = self._new.pop()
        keys = places.of_all(state, batch.keys, batch.held)
        state, _ = self._shared.bring_up(self._coll, state, keys, batch.held)
        return batch.given, state

    def _held(self) -> list[dict[str, list[jax.Array]]]:
        """Ids of the batches whose rows stay: that of the latest lookup, too."""
        last = [] if self._last is None else [self._last.held]
        return [*last, *(batch.held for batch, _ in self._coming)]

    def _keys_of(
        self, state: States, ids: Mapping[str, Any], call: str
    ) -> tuple[Mapping[str, Any], dict[str, list[jax.Array]], dict[str, Any]]:
        """Keys of the tables with stores; these as ids, and all as they were given."""
        self._check()
        check_values(state, call)
        places = self._shared.places
        keys, held, arrays = table_keys(self._coll, self.stores, ids, places)
        return places.of_all(state, keys, held), held, arrays

    def _submit(self, state: States, new: list[Batch]) -> States:
        """Sends the thread what has departed, and the keys of the new batches."""
        state, departed = self._take(state)
        for batch in new or [None]:
            places, first = self._shared.places, self._shared.first
            wanted = batch and places.of_all(state, batch.keys, batch.held)
            number = first + len(self._coming)
            job = Job(first, departed=departed, number=number, wanted=wanted or {})
            future = self._shared.send(job)
            if departed is not None:
                self._taken.append((departed, future))
            if batch is not None:
                self._coming.append((batch, future))
            departed = None
        return state

    def _take(self, state: States) -> tuple[States, Any]:
        """Swaps the rings for others, that the thread has read before if there are."""
        reuse = None
        if self._taken and self._is_read(self._taken[0][1]):
            reuse, _ = self._taken.popleft()
        state, departed = self._coll.take_departed(state, reuse=reuse)
        return state, departed

    def _is_read(self, future: Future[Any]) -> bool:
        """Whether the thread has read the oldest rings; alike in all processes."""
        if self._shared.places.is_alone:
            return future.done()
        if len(self._taken) <= self._depth:
            return False
        wait([future])
        return True
