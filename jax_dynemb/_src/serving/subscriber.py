# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Follows a publication in JAX: each lookup reads one moment of the training."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.shard import copied, counter_values
from jax_dynemb._src.files.integrity import (
    TABLES,
    Channel,
    Follower,
    Part,
    check_dense,
    dense_path,
    read_header,
    split_dense,
    verify,
)
from jax_dynemb._src.files.safetensors import (
    open_series,
    read_tensor,
    safetensors,
)
from jax_dynemb._src.ops import placed_like
from jax_dynemb._src.serving.changed_keys import (
    ChangedKeys,
    changed_in,
    newest_of,
    prepare,
    with_changes,
)
from jax_dynemb._src.table import Tables, insert_chunks

_Changes = dict[str, list[ChangedKeys]]


class Version(NamedTuple):
    """Names one moment of the training.

    Attributes:
      number: in the publication.
      step: as the publisher calls it.
      time: seconds since 1970, when the publisher copied the rows.
      dense: NumPy arrays by path, of the same moment.
    """

    number: int
    step: int
    time: float
    dense: Mapping[str, np.ndarray]

    def age(self) -> float:
        """Returns seconds since the rows were copied."""
        return max(0.0, time.time() - self.time)


class Subscriber(Follower):
    """Serves what a ``Publisher`` writes: tables that follow the training.

    A thread looks for new segments and applies each whole, to a state that no lookup
    reads. So there are two states, and memory for both, from the first segment on. A
    gap, another run, or a publisher that went back to an older checkpoint lead to the
    newest snapshot.

    Args:
      source: the folder of the publisher, or a channel: ``Redis``, ``Socket`` or
        ``Bucket``. While that is away, what is served stays and its age grows. Of a job
        of several processes, a list of those of all.
      coll: tables of the same names, dims and capacities, on any mesh.
      interval: seconds between two looks; 0: nothing is applied but by ``update``.
      wait: seconds to wait for the first snapshot.

    Raises:
      ConnectionError: the channel is away for all of that time.
      FileNotFoundError: there is no snapshot after that time.

    Example:
      >>> with jde.serving.Subscriber(folder, coll) as served:  # doctest: +SKIP
      ...     rows = served.find({"item": ids})["item"]
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Channel | Sequence[Any],
        coll: Tables,
        *,
        interval: float = 0.05,
        wait: float = 60.0,
    ):
        """Loads the newest snapshot and the segments behind it."""
        self._coll, self._reading = coll, threading.Lock()
        self._states: list[States] = []
        self._waits_for_standby: list[_Changes] = []
        self._prepared: set[tuple[str, int]] = set()
        super().__init__(source, interval, wait)

    def find(self, ids: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """Returns the rows of ``Tables.find``, all of one version.

        Args:
          ids: by feature.
          options: of ``Tables.find``.
        """
        with self.reading() as (_, state):
            return self._coll.find(state, ids, **options)[0]

    @contextlib.contextmanager
    def reading(self) -> Iterator[tuple[Version, States]]:
        """Holds a version and its state for lookups of a program of your own.

        Start the lookups inside of the block; their results may be read later. The
        state must not be donated, nor used after the block.
        """
        with self._reading:
            yield self.version(), self._states[0]

    def version(self) -> Version:
        """Returns which moment is served."""
        return super().version()

    def __enter__(self) -> Subscriber:
        """Returns itself."""
        return self

    # ---- parts -------------------------------------------------------------------

    def _take_snapshot(self, bases: list[Part], segments: list[list[Part]]) -> None:
        """Serves a snapshot; the standby is made when a segment comes."""
        changes = self._read(segments)
        count = 2 if self._has_tiers() else 1
        self._states = self._states[:count]  # the others' memory is for the new state
        self._waits_for_standby = []
        states = [self._changed(self._loaded(bases), changes) for _ in range(count)]
        self._serve([bases[0], *segments[0]][-1], states)

    def _has_tiers(self) -> bool:
        """Whether a copy of the arrays on the devices would not be a copy of all."""
        tables = self._coll.engine.catalog.dynamic.values()
        return any(config.tier is not None for config in tables)

    def _loaded(self, bases: list[Part]) -> States:
        """Returns a state with the rows of all snapshots."""
        names = list(self._coll.engine.catalog.dynamic)
        first, *others = [base.path / TABLES for base in bases]
        state = safetensors(first, self._coll, tables=names, quiet=True).state
        for folder in others:
            for name in names:
                series = open_series(folder / f"{name}.safetensors")
                series.verify()
                arrays = self._coll.state_name(name)
                state = state | {
                    arrays: insert_chunks(
                        self._coll,
                        name,
                        state[arrays],
                        series.chunks(),
                        optimizer=False,
                        scores=False,
                    )
                }
        return state

    def _take_segments(self, segments: list[list[Part]]) -> None:
        """Brings the standby up to these parts, and serves it."""
        part = segments[0][-1]
        changes = self._read(segments)
        self._catch_up()  # if an error stopped that of the last segment
        serving, standby = self._with_standby()
        standby = self._changed(standby, changes)
        # To apply a segment twice changes nothing, so an error may be followed by this.
        self._states = [serving, standby]
        self._check_rows(part, standby)
        self._serve(part, [standby, serving])
        self._waits_for_standby = [changes]
        self._catch_up()
        self._prepare_larger(changes)

    def _prepare_larger(self, changes: _Changes) -> None:
        """Compiles what a larger segment needs, each table and size once.

        One after each segment, so that many tables do not delay the next for long.
        """
        for name, each in changes.items():
            arrays = self._coll.state_name(name)
            for size in {size for x in each if (size := x.larger_size())}:
                if (name, size) not in self._prepared:
                    self._prepared.add((name, size))
                    prepare(self._coll, name, self._states[1][arrays], each[0], size)
                    return

    def _catch_up(self) -> None:
        """Brings the standby to what is served, so the next segment need not wait."""
        if self._waits_for_standby:
            serving, standby = self._states
            for each in self._waits_for_standby:
                standby = self._changed(standby, each)
            self._states, self._waits_for_standby = [serving, standby], []

    def _with_standby(self) -> list[States]:
        """Returns what is served, and a state like it for the next segment."""
        if len(self._states) < 2:
            serving = self._states[0]
            return [serving, copied(serving)]
        return self._states

    def _serve(self, part: Part, states: list[States]) -> None:
        dense, trains = split_dense(_dense(part))
        for name in trains.keys() & self._coll.tables.keys():
            states[0] = states[0] | {name: _with_cores(states[0][name], trains[name])}
        version = Version(part.number, part.step, part.time, dense)
        with self._reading:
            self._states, self._version = states, version

    def _read(self, segments: list[list[Part]]) -> _Changes:
        """Reads the changes of all tables, compared with their checksums."""
        found: _Changes = {}
        for name, config in self._coll.engine.catalog.dynamic.items():
            # Of a channel the last segment counts; those of others have other keys.
            found[name] = [
                changes
                for own in segments
                for changes in newest_of(
                    [changed_in(part, name, config.dim) for part in own]
                )
            ]
        return found

    def _changed(self, state: States, changes: _Changes) -> States:
        new = dict(state)
        for name, each in changes.items():
            arrays = self._coll.state_name(name)
            new[arrays] = with_changes(self._coll, name, new[arrays], each)
        return new

    def _check_rows(self, part: Part, state: States) -> None:
        for name in part.files.keys() & self._coll.engine.catalog.dynamic.keys():
            held = counter_values(
                self._coll.hash_engine.with_own_counters(state, name)
            )["rows"]
            if held != part.tables[name]["rows"]:
                raise ValueError(
                    f"Subscriber: table '{name}' has {held} rows, but "
                    f"{part.tables[name]['rows']} are published: declare it with the "
                    "capacity and the padding_id of the publisher's."
                )


def _with_cores(state: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Returns the state of a tensor train with other cores, where its own are."""
    cores = [arrays[f"core_{t}"] for t in range(len(state.cores))]
    pairs = zip(cores, state.cores, strict=True)
    placed = tuple(placed_like(new, old) for new, old in pairs)
    return dataclasses.replace(state, cores=placed)


def _dense(part: Part) -> dict[str, np.ndarray]:
    path = dense_path(part)
    if path is None:
        return {}
    header = read_header(path)
    check_dense(part, header)
    verify(header)
    return {name: read_tensor(header, name) for name in header.tensors}
