# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One thread and one order of jobs for all prefetchers over the same stores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn

import jax
import jax.numpy as jnp

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.shard import counter_values
from jax_dynemb._src.stores import Store
from jax_dynemb._src.table import Tables
from jax_dynemb._src.tiers import device as _device
from jax_dynemb._src.tiers.mover import BESIDE, Job, Mover
from jax_dynemb._src.tiers.together import Places
from jax_dynemb._src.tiers.traffic import Offer

Held = Mapping[str, list[jax.Array]]
_open: dict[Hashable, Shared] = {}  # by the place of a store
# States whose departed rows could not be stored: stamp and lookups by the place.
_lost: dict[Hashable, tuple[int, int]] = {}


_FAILED = (
    "the prefetcher of another process has failed, whose error says why. Go on from "
    "the last checkpoint in all of them."
)


def shared_by(stores: Mapping[str, Store]) -> Shared | None:
    """Finds what the open prefetcher over exactly these stores has, or None."""
    found = {id(x): x for x in map(_open.get, map(_place, stores.values())) if x}
    if not found:
        return None
    one, *others = found.values()
    if others or set(map(_place, one.stores.values())) != set(
        map(_place, stores.values())
    ):
        raise ValueError(
            "Another prefetcher moves the rows of some of the stores "
            f"{sorted(stores)}, and it has stores for {sorted(one.stores)}. Give both "
            "prefetchers the same stores."
        )
    return one


def _place(store: Store) -> Hashable:
    """Where the rows of a store lie, as far as it says so."""
    place = getattr(store, "place", None)
    return id(store) if place is None else place


class Shared:
    """Runs the jobs of all prefetchers over some stores.

    One of them may train: it has batches on their way, whose rows must stay in the
    tables. The prefetchers beside it have none. They bring rows up at once, and leave
    the holds of rows as they were.
    """

    def __init__(
        self,
        tables: Sequence[TableConfig],
        stores: Mapping[str, Store],
        most_waiting: float,
        places: Places,
    ):
        self.stores, self.places = stores, places
        self.mover = Mover(tables, stores, most_waiting, places)
        self.trains = False  # whether there is a prefetcher that trains
        self.first = 0  # the number of its batch that comes next
        self._coming: Callable[[], Sequence[Held]] = list
        self._lookups = 1
        self.was_beside = False  # whether another one has moved rows since it did
        self.raised = False  # whether a call has raised the thread's error
        self._failed = False  # whether the processes know of an error of one of them
        self.is_closed = False  # whether the prefetcher that made this is
        self._inserted: list[Offer] = []  # and the thread does not know of it yet
        _open.update((_place(store), self) for store in stores.values())

    def begin(self, coming: Callable[[], Sequence[Held]], depth: int) -> None:
        """Notes the one that trains; rows of the ids that ``coming`` returns stay."""
        self.trains, self._coming, self._lookups = True, coming, depth + 1

    def end(self) -> None:
        """Forgets the prefetcher that trains."""
        self.trains, self._coming = False, list

    def check(self) -> None:
        """Raises the error of the thread, or that the prefetcher of this is closed."""
        if self.is_closed:
            raise RuntimeError(
                "the prefetcher that moves the rows of these stores is closed; make "
                "another one."
            )
        if self.mover.error is not None and (self.places.is_alone or self._failed):
            self.raised = True
            raise self.mover.error

    def fail(self) -> NoReturn:
        """Raises the error of this process, or that another one has raised its own."""
        self._failed = True
        if self.mover.error is None:
            self.mover.error = RuntimeError(_FAILED)
        self.raised = True
        raise self.mover.error

    def send(self, job: Job) -> Future[dict[str, Offer]]:
        """Starts a job, which first learns what was inserted."""
        job.confirmed, self._inserted = self._inserted, []
        return self.mover.submit(job)

    def result(self, future: Future[dict[str, Offer]]) -> dict[str, Offer]:
        """Waits for a job."""
        try:
            return future.result()
        except BaseException:
            self.raised = self.mover.error is not None
            raise

    def result_of_all(
        self, state: States, future: Future[dict[str, Offer]]
    ) -> dict[str, Offer]:
        """Waits for a job of each process, all of which succeed, or all raise."""
        rows, error = {}, None
        try:
            rows = self.result(future)
        except Exception as raised:
            if self.places.is_alone:
                raise
            error = raised
        numbers = self.numbers(rows, error is not None)
        failed, *sizes = self.places.most(state, numbers)
        if error is not None or failed:
            if self.mover.error is not None:
                self._failed = True
            raise error or RuntimeError(_FAILED)
        return self.ready(rows, sizes)

    def numbers(self, rows: Mapping[str, Offer], failed: bool) -> list[int]:
        """Counts rows for the other processes, behind whether this one has failed."""
        sizes = [len(rows[n].keys) if n in rows else 0 for n in sorted(self.stores)]
        return [int(failed), *sizes]

    def ready(self, rows: dict[str, Offer], sizes: Sequence[int]) -> dict[str, Offer]:
        """Makes the arrays of rows, of sizes by table that all processes agree on."""
        if not self.places.is_alone:
            for name, most in zip(sorted(self.stores), sizes, strict=True):
                if name in rows:
                    self.mover.traffic[name].ready(rows[name], most)
        return rows

    def insert(self, coll: Tables, state: States, rows: Mapping[str, Offer]) -> States:
        """Inserts rows from below that the tables lack."""
        for offer in rows.values():
            if offer.arrays:
                state = _device.insert(coll, state, offer)
                self._inserted.append(offer)
        return state

    def hold_coming(self, coll: Tables, state: States) -> States:
        """Holds the rows of coming batches that are in the tables now."""
        for held in self._coming():
            state = _device.hold(coll, state, held, self._lookups)
        return state

    def bring_up(
        self, coll: Tables, state: States, keys: Mapping[str, Any], held: Held
    ) -> tuple[States, dict[str, Offer]]:
        """Brings rows up beside the batches; returns the state and what was found.

        No row of these keys, and none that a coming batch needs, departs for it. Its
        own holds end with it, so any number of calls may come between two lookups.
        """
        self.was_beside = True
        state = self.hold_coming(coll, state)
        before = {name: jnp.copy(_held(state[coll.state_name(name)])) for name in held}
        state = _device.hold(coll, state, held, 1)
        state, departed = coll.take_departed(state)
        job = Job(self.first, departed=departed, number=BESIDE, wanted=keys)
        offers = self.result_of_all(state, self.send(job))
        state = dict(self.insert(coll, state, offers))
        for name, each in before.items():
            arrays = state[coll.state_name(name)]
            assert arrays.tier is not None
            tier = dataclasses.replace(arrays.tier, held=each)
            state[coll.state_name(name)] = dataclasses.replace(arrays, tier=tier)
        return self.hold_coming(coll, state), offers

    def note_lost(self, coll: Tables, state: States) -> None:
        """Notes that a state lacks rows, if the thread has failed."""
        leaves = jax.tree.leaves(dict(state))
        if self.mover.error is None or any(leaf.is_deleted() for leaf in leaves):
            return
        for name, store in self.stores.items():
            _lost.setdefault(_place(store), _moment(coll, state, name))

    def check_lost(self, coll: Tables, state: States) -> None:
        """Raises if rows of a state were lost, since an earlier prefetcher failed."""
        for name, store in self.stores.items():
            if (place := _place(store)) not in _lost:
                continue
            stamp, lookups = _moment(coll, state, name)
            if stamp == _lost[place][0] and lookups >= _lost[place][1]:
                raise RuntimeError(
                    f"Rows of table '{name}' had departed when its store failed, and "
                    "are in no store. Go on from the last checkpoint: "
                    "jde.checkpoint.restore(..., stores=stores)."
                )
            del _lost[place]

    def close(self) -> None:
        """Ends the thread once its jobs are done."""
        self.is_closed = True
        for place in [place for place, one in _open.items() if one is self]:
            del _open[place]
        self.mover.close()


def _moment(coll: Tables, state: States, table: str) -> tuple[int, int]:
    """The stamp of a table, and how many lookups it has seen; waits for the device."""
    own = coll.hash_engine.counter_rows(table)
    counters = counter_values(state[coll.state_name(table)], own)
    return counters["stamp"], counters["lookups"]


def _held(arrays: Any) -> jax.Array:
    return arrays.tier.held
