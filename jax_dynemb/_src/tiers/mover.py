# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The thread that reads and writes stores while steps run, for one run of states."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.rows import Identity, Relation
from jax_dynemb._src.store_identity import identity_below, note_identity
from jax_dynemb._src.stores import Store
from jax_dynemb._src.tiers.batches import keys_on_host
from jax_dynemb._src.tiers.together import Places
from jax_dynemb._src.tiers.traffic import Offer, Traffic

BESIDE = -1  # the number of rows that are wanted beside the batches


@dataclasses.dataclass
class Job:
    """Describes what the thread does between two steps, in this order."""

    first: int  # the batch whose lookup comes next
    confirmed: Sequence[Offer] = ()  # offers whose rows the main thread has inserted
    departed: Any = None  # rows that the tables evicted, see ``Tables.take_departed``
    # Keys by table, see ``keys_on_host``, whose rows below are removed.
    erased: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    number: int = 0  # of the batch that it prepares
    # Keys by table of that batch, likewise.
    wanted: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Of a commit of all stores, which leaves the rows in the state; None: no commit.
    tag: str | None = None
    step: int | None = None  # of the training, for the commit


class Mover:
    """Runs jobs in one thread, in order; after an error, but of a commit, none."""

    def __init__(
        self,
        tables: Sequence[TableConfig],
        stores: Mapping[str, Store],
        most_waiting: float,
        places: Places,
    ):
        self.error: BaseException | None = None
        self.traffic = {t.name: Traffic(t, stores[t.name], places) for t in tables}
        self._most_waiting = most_waiting
        self._moments = Moments(stores)
        self._thread = ThreadPoolExecutor(1, "jax_dynemb.prefetch_rows")

    def submit(self, job: Job) -> Future[dict[str, Offer]]:
        """Starts a job; its result are the rows of the batch, by table."""
        return self._thread.submit(self._run, job)

    def close(self) -> None:
        """Ends the thread once its jobs are done."""
        self._thread.shutdown(wait=True)

    def _run(self, job: Job) -> dict[str, Offer]:
        if self.error is not None:
            raise self.error
        try:
            offers = self._moved(job)
        except BaseException as error:
            self.error = error
            raise
        if job.tag is not None:  # its failure leaves everything as it was
            self._commit(job)
        return offers

    def _moved(self, job: Job) -> dict[str, Offer]:
        if job.departed is not None:
            self._moments.go_on(job.departed)
        for offer in job.confirmed:
            self.traffic[offer.table].confirm(offer)
        if job.departed is not None:
            self._put(job.departed, job.first, job.tag is None)
        for name, keys in job.erased.items():
            self.traffic[name].erase(self._read(name, keys))
        return {
            name: self.traffic[name].offer(job.number, self._read(name, keys))
            for name, keys in job.wanted.items()
        }

    def _read(self, name: str, keys: Any) -> np.ndarray:
        return keys_on_host(self.traffic[name].config, keys)

    def _put(self, departed: Any, first: int, taken: bool) -> None:
        for name, traffic in self.traffic.items():
            traffic.put(departed.exported(name), first, taken)
            if traffic.waiting_bytes > self._most_waiting:
                raise RuntimeError(
                    f"{_full(name, traffic)} They fill waiting_megabytes."
                )

    def _commit(self, job: Job) -> None:
        assert job.tag is not None
        for name, traffic in self.traffic.items():
            traffic.put_waiting(job.first)
            if traffic.waiting:
                raise RuntimeError(f"{_full(name, traffic)} A commit would lose them.")
        for traffic in self.traffic.values():
            traffic.commit(job.tag, job.step)


def _full(name: str, traffic: Traffic) -> str:
    return (
        f"The store of table '{name}' has no room for {len(traffic.waiting)} rows, "
        "which wait in memory. Raise disk_gigabytes, and go on from the last "
        "checkpoint."
    )


class Moments:
    """Compares states of a prefetcher, the first with what stores say; one thread."""

    def __init__(self, stores: Mapping[str, Store]):
        self._stores = stores
        self._latest = {name: identity_below(each) for name, each in stores.items()}

    def go_on(self, departed: Any) -> None:
        """Takes the state that rows departed from, of this run; waits for the device.

        It comes before any of its rows moves, so the stores stay as they were.
        """
        for name, store in self._stores.items():
            now = departed.identity(name)
            if now is None:
                continue
            _check(name, self._latest[name], now)
            self._latest[name] = now
            note_identity(store, now)


def _check(name: str, latest: Identity | None, now: Identity) -> None:
    relation = Relation.SAME if latest is None else now.relation(latest)
    if relation in (Relation.SAME, Relation.CONTINUES):
        return
    other = "another run"
    if relation is not Relation.OTHER_RUN:
        other = "an earlier moment, or of a history that was left"
    raise ValueError(
        f"Table '{name}': the prefetcher got a state of {other}, but the rows in its "
        "store go with the state that prefetcher.next returned last. Give it the state "
        "that the step made of that one; after a restore make a new prefetcher, with "
        "the stores that jde.checkpoint.restore(..., stores=stores) has opened."
    )
