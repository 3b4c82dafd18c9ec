# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Follows a publication: each lookup reads one moment of the training."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from jax_dynemb_torch._collection import EmbeddingBagCollection
from jax_dynemb_torch._delta import changes_in
from jax_dynemb_torch._integrity import (
    DENSE,
    TABLES,
    DamagedFileError,
    Part,
    delta_path,
    newest,
    numbers_in,
    read_part,
    segment_path,
    split_dense,
)
from jax_dynemb_torch._safetensors import open_file
from jax_dynemb_torch._snapshot import Snapshot
from jax_dynemb_torch._tensor_train import TTEmbeddingBag

# With so many newer rows, as a share of the table, a newer snapshot is loaded.
_MOST_OVERLAY = 0.25


@dataclasses.dataclass(frozen=True)
class Version:
    """One moment of the training; it never changes.

    Attributes:
      number: in the publication.
      step: as the publisher calls it.
      time: seconds since 1970, when the publisher copied the rows.
      collection: the tables.
      dense: tensors by path, of the same moment.
      tensor_trains: by table.
    """

    number: int
    step: int
    time: float
    collection: EmbeddingBagCollection
    dense: Mapping[str, torch.Tensor]
    tensor_trains: Mapping[str, TTEmbeddingBag]

    def age(self) -> float:
        """Seconds since the rows were copied."""
        return max(0.0, time.time() - self.time)


class Subscriber:
    """Serves what ``jde.serving.Publisher`` writes: tables that follow the training.

    A thread looks for new segments and applies each whole, while others look up. A gap,
    another run, or a publisher that went back to an older checkpoint lead to the newest
    snapshot.

    Args:
      folder: of the publisher.
      device: where the tables are; the CPU if None.
      interval: seconds between two looks; 0: nothing is applied but by ``update``.
      wait: seconds to wait for the first snapshot.
      options: of ``EmbeddingBagCollection``.

    Raises:
      FileNotFoundError: there is no snapshot after that time.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        device: torch.device | str | None = None,
        interval: float = 0.05,
        wait: float = 60.0,
        **options: Any,
    ):
        self._folder, self._options = Path(folder), options
        self._device = torch.device(device or "cpu")
        self._updating = threading.Lock()
        self._error: BaseException | None = None
        self._applied = self._loaded = 0
        self._load(wait)
        self.update()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if interval > 0:
            name = "jax_dynemb_torch.subscriber"
            self._thread = threading.Thread(
                target=self._follow, args=(interval,), name=name, daemon=True
            )
            self._thread.start()

    def __call__(self, features: Any, weights: Any = None) -> dict[str, torch.Tensor]:
        """Looks up and pools as ``EmbeddingBagCollection`` does, all of one version."""
        return self.version().collection(features, weights)

    def version(self) -> Version:
        """What is served. Hold it to read dense tensors and rows of one moment."""
        if self._error is not None:
            raise self._error
        return self._version

    def stats(self) -> dict[str, float]:
        """Segments and snapshots that were applied; number, step and age."""
        served = self._version
        return {
            "segments": self._applied,
            "snapshots": self._loaded,
            "number": served.number,
            "step": served.step,
            "age": served.age(),
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
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _follow(self, interval: float) -> None:
        while not self._stop.wait(interval):
            try:
                self.update()
            except BaseException as error:  # the next call raises it
                self._error = error
                return

    def _next(self) -> bool:
        """Applies one segment, or loads a snapshot; False if nothing is new."""
        try:
            part = read_part(segment_path(self._folder, self._part.number + 1))
            if part.previous != self._part.token:
                return self._load_newer()
            collection = self._changed(part)
        except FileNotFoundError:
            return self._load_newer()
        self._applied += 1
        self._serve(part, collection)
        if self._overlay() > _MOST_OVERLAY:
            self._load_newer(self._base.number)
        return True

    def _changed(self, part: Part) -> EmbeddingBagCollection:
        """The collection with the changes of all tables of a segment."""
        held = self._version.collection
        snapshots: dict[str, Snapshot] = {}
        for bag in held.bags:
            link = part.files.get(bag.name)
            if link is None:
                continue
            file = open_file(delta_path(part.path, bag.name), delta=True)
            if file.header.link != link:
                raise DamagedFileError(file.path, "it is of another segment")
            changes = changes_in(file, bag.name, bag.dim)
            snapshots[bag.name] = bag.snapshot.updated(*changes, file.until)
        return held.with_snapshots(snapshots)

    def _overlay(self) -> float:
        """The largest share of newer rows of a table."""
        shares = (
            bag.overlay_rows / max(1, bag.snapshot.base.size)
            for bag in self._version.collection.bags
        )
        return max(shares, default=0.0)

    def _load_newer(self, than: int | None = None) -> bool:
        """Loads a snapshot behind a number; that of the version if None."""
        than = self._part.number if than is None else than
        snapshots = numbers_in(self._folder, "snapshot")
        if not snapshots or snapshots[-1] <= than:
            return False
        self._load(0.0)
        return True

    def _load(self, wait: float) -> None:
        until = time.monotonic() + wait
        while True:
            try:
                base = newest(self._folder)[0] if self._folder.is_dir() else None
                if base is not None:
                    tables = base.path / TABLES
                    collection = EmbeddingBagCollection(tables, **self._options)
                    self._serve(base, collection.to(self._device))
                    break
            except FileNotFoundError:
                continue  # removed as an old one
            if time.monotonic() >= until:
                raise FileNotFoundError(
                    f"{self._folder} has no snapshot: start the publisher, which "
                    "writes one with its first step, or wait= longer for it."
                )
            time.sleep(0.05)
        self._base = base
        self._loaded += 1

    def _serve(self, part: Part, collection: EmbeddingBagCollection) -> None:
        dense, trains = split_dense(self._dense(part))
        modules = {name: TTEmbeddingBag(arrays) for name, arrays in trains.items()}
        version = Version(part.number, part.step, part.time, collection, dense, modules)
        # A lookup reads this one attribute once, so it has one version.
        self._version, self._part = version, part

    def _dense(self, part: Part) -> dict[str, torch.Tensor]:
        path = part.path / DENSE
        if not path.exists():
            return {}
        tensors = open_file(path, dense=True).tensors
        return {name: x.to(self._device, copy=True) for name, x in tensors.items()}
