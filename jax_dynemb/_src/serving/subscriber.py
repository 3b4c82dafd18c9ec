# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Follows a publication in JAX: each lookup reads one moment of the training."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.shard import counter_values
from jax_dynemb._src.files.integrity import (
    DENSE,
    TABLES,
    DamagedFileError,
    Part,
    delta_path,
    newest,
    numbers_in,
    read_delta_header,
    read_header,
    read_part,
    segment_path,
    split_dense,
    verify,
)
from jax_dynemb._src.files.safetensors import read_tensor, rows_of, safetensors
from jax_dynemb._src.rows import Exported
from jax_dynemb._src.table import Tables, erase_keys, insert_chunks


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


class Subscriber:
    """Serves what a ``Publisher`` writes: tables that follow the training.

    A thread looks for new segments and applies each whole, to a state that no lookup
    reads. So there are two states, and memory for both. A gap, another run, or a
    publisher that went back to an older checkpoint lead to the newest snapshot.

    Args:
      folder: of the publisher.
      coll: tables of the same names, dims and capacities, on any mesh.
      interval: seconds between two looks; 0: nothing is applied but by ``update``.
      wait: seconds to wait for the first snapshot.

    Raises:
      FileNotFoundError: there is no snapshot after that time.

    Example:
      >>> with jde.serving.Subscriber(folder, coll) as served:  # doctest: +SKIP
      ...     rows = served.find({"item": ids})["item"]
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        coll: Tables,
        *,
        interval: float = 0.05,
        wait: float = 60.0,
    ):
        """Loads the newest snapshot and the segments behind it."""
        self._folder, self._coll = Path(folder), coll
        self._updating, self._reading = threading.Lock(), threading.Lock()
        self._states: list[States] = []
        self._waits_for_standby: list[tuple[Part, dict[str, list[Exported]]]] = []
        self._part: Part | None = None
        self._error: BaseException | None = None
        self._applied = self._reloaded = 0
        self._load(wait)
        self.update()
        self._stop = threading.Event()
        self._thread = None
        if interval > 0:
            self._thread = threading.Thread(
                target=self._follow, args=(interval,), name="jax_dynemb.subscriber"
            )
            self._thread.daemon = True
            self._thread.start()

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
        self._raise_error()
        return self._version

    def stats(self) -> dict[str, float]:
        """Counts segments and snapshots that were applied; number, step and age."""
        return {
            "segments": self._applied,
            "snapshots": self._reloaded,
            "number": self._version.number,
            "step": self._version.step,
            "age": self._version.age(),
        }

    def update(self) -> int:
        """Applies what is there now, and returns how many segments that were."""
        with self._updating:
            before = self._applied
            while self._next():
                pass
            return self._applied - before

    def close(self) -> None:
        """Ends the thread; lookups go on with the last version."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Subscriber:
        """Returns itself."""
        return self

    def __exit__(self, *_: Any) -> None:
        """Closes it."""
        self.close()

    # ---- what is served ----------------------------------------------------------

    def _follow(self, interval: float) -> None:
        while not self._stop.wait(interval):
            try:
                self.update()
            except BaseException as error:  # noqa: BLE001 (the next call raises it)
                self._error = error
                return

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _next(self) -> bool:
        """Applies one segment, or loads a snapshot; False if nothing is new."""
        assert self._part is not None
        try:
            part = read_part(segment_path(self._folder, self._part.number + 1))
            continues = part.previous == self._part.token
            changes = self._read(part) if continues else {}
        except FileNotFoundError:
            return self._load_newer()
        if not continues:
            return self._load_newer()
        self._apply(part, changes)
        return True

    def _load_newer(self) -> bool:
        """Loads a snapshot that this publication has and the reader cannot reach."""
        assert self._part is not None
        snapshots = numbers_in(self._folder, "snapshot")
        if not snapshots or snapshots[-1] <= self._part.number:
            return False
        self._load(0.0)
        return True

    def _load(self, wait: float) -> None:
        until = time.monotonic() + wait
        while True:
            try:
                base = newest(self._folder)[0] if self._folder.is_dir() else None
                if base is not None:
                    states = [self._tables_in(base) for _ in range(2)]
                    break
            except FileNotFoundError:
                continue  # removed as an old one
            if time.monotonic() >= until:
                raise FileNotFoundError(
                    f"{self._folder} has no snapshot: start the publisher, which "
                    "writes one with its first step, or wait= longer for it."
                )
            time.sleep(0.05)
        self._reloaded += 1
        self._waits_for_standby = []
        self._serve(base, states)

    def _tables_in(self, snapshot: Part) -> States:
        names = list(self._coll.engine.catalog.dynamic)
        path = snapshot.path / TABLES
        return safetensors(path, self._coll, tables=names, quiet=True).state

    def _serve(self, part: Part, states: list[States]) -> None:
        dense, trains = split_dense(_dense(part))
        for name in trains.keys() & self._coll.tables.keys():
            states[0] = states[0] | {name: _with_cores(states[0][name], trains[name])}
        version = Version(part.number, part.step, part.time, dense)
        with self._reading:
            self._part, self._states, self._version = part, states, version

    # ---- segments ----------------------------------------------------------------

    def _read(self, part: Part) -> dict[str, list[Exported]]:
        """Reads the changes of all tables, compared with their checksums."""
        found = {}
        for name in part.files:
            if name not in self._coll.engine.catalog.dynamic:
                continue
            header = read_delta_header(delta_path(part.path, name))
            if header.link != part.files[name]:
                raise DamagedFileError(header.path, "it is of another segment")
            verify(header)
            keys = read_tensor(header, "keys")
            rows = rows_of(header, np.arange(len(keys)), self._dim(name))
            scores = np.ones(len(keys), np.uint64)
            removed = read_tensor(header, "removed")
            found[name] = [
                Exported(keys, rows.astype(np.float32), scores, {}, removed=removed)
            ]
        return found

    def _apply(self, part: Part, changes: dict[str, list[Exported]]) -> None:
        """Brings the standby up to this part, and serves it."""
        self._waits_for_standby.append((part, changes))
        serving, standby = self._states
        for _, each in self._waits_for_standby:
            standby = self._changed(standby, each)
        self._check_rows(part, standby)
        self._applied += 1
        self._serve(part, [standby, serving])
        self._waits_for_standby = [(part, changes)]

    def _changed(self, state: States, changes: dict[str, list[Exported]]) -> States:
        new = dict(state)
        for name, chunks in changes.items():
            arrays = self._coll.state_name(name)
            for chunk in chunks:
                gone: Any = chunk.removed
                new[arrays] = erase_keys(self._coll, name, new[arrays], gone)
            new[arrays] = insert_chunks(
                self._coll, name, new[arrays], chunks, optimizer=False, scores=False
            )
        return new

    def _dim(self, name: str) -> int:
        return self._coll.engine.catalog.dynamic[name].dim

    def _check_rows(self, part: Part, state: States) -> None:
        for name in part.files:
            if name not in self._coll.engine.catalog.dynamic:
                continue
            held = counter_values(self._coll.hash_engine.counted(state, name))["rows"]
            if held != part.tables[name]["rows"]:
                raise ValueError(
                    f"Subscriber: table '{name}' has {held} rows, but "
                    f"{part.tables[name]['rows']} are published: declare it with the "
                    "capacity of the publisher's."
                )


def _with_cores(state: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Returns the state of a tensor train with other cores, where its own are."""
    cores = [arrays[f"core_{t}"] for t in range(len(state.cores))]
    pairs = zip(cores, state.cores, strict=True)
    placed = tuple(jax.device_put(new, old.sharding) for new, old in pairs)
    return dataclasses.replace(state, cores=placed)


def _dense(part: Part) -> dict[str, np.ndarray]:
    path = part.path / DENSE
    if not path.exists():
        return {}
    header = read_header(path)
    verify(header)
    return {name: read_tensor(header, name) for name in header.tensors}
