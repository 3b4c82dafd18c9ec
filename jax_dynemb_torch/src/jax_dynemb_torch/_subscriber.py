# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Follows a publication: each lookup reads one moment of the training."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from jax_dynemb_torch._collection import EmbeddingBagCollection
from jax_dynemb_torch._delta import changes_in
from jax_dynemb_torch._integrity import (
    TABLES,
    Channel,
    DamagedFileError,
    Follower,
    Part,
    check_dense,
    delta_path,
    dense_path,
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


class Subscriber(Follower):
    """Serves what ``jde.serving.Publisher`` writes: tables that follow the training.

    A thread looks for new segments and applies each whole, while others look up. A gap,
    another run, or a publisher that went back to an older checkpoint lead to the newest
    snapshot.

    Args:
      source: the folder of the publisher, or a channel: ``Redis``, ``Socket`` or
        ``Bucket``. While that is away, what is served stays and its age grows. Of a job
        of several processes, a list of those of all.
      device: where the tables are; the CPU if None.
      interval: seconds between two looks; 0: nothing is applied but by ``update``.
      wait: seconds to wait for the first snapshot.
      options: of ``EmbeddingBagCollection``.

    Raises:
      ConnectionError: the channel is away for all of that time.
      FileNotFoundError: there is no snapshot after that time.
    """

    def __init__(
        self,
        source: str | Path | Channel | Sequence[str | Path | Channel],
        *,
        device: torch.device | str | None = None,
        interval: float = 0.05,
        wait: float = 60.0,
        **options: Any,
    ):
        self._options, self._device = options, torch.device(device or "cpu")
        super().__init__(source, interval, wait)

    def __call__(self, features: Any, weights: Any = None) -> dict[str, torch.Tensor]:
        """Looks up and pools as ``EmbeddingBagCollection`` does, all of one version."""
        return self.version().collection(features, weights)

    def version(self) -> Version:
        """What is served. Hold it to read dense tensors and rows of one moment."""
        return super().version()

    def __enter__(self) -> Subscriber:
        return self

    def _take_snapshot(self, bases: list[Part], segments: list[list[Part]]) -> None:
        """Serves whole tables, and the segments that lead all to one moment."""
        paths = [base.path / TABLES for base in bases]
        collection = EmbeddingBagCollection(paths, **self._options)
        part = [bases[0], *segments[0]][-1]
        dense = self._dense(part)
        followed = self._followed(collection.to(self._device), segments)
        self._serve(part, followed, dense)

    def _take_segments(self, segments: list[list[Part]]) -> None:
        """Serves the collection with the changes of all tables."""
        dense = self._dense(segments[0][-1])  # first, too: see _followed
        followed = self._followed(self._version.collection, segments)
        self._serve(segments[0][-1], followed, dense)

    def _followed(
        self, held: EmbeddingBagCollection, segments: list[list[Part]]
    ) -> EmbeddingBagCollection:
        """Returns a collection behind segments of each channel, in order."""
        # Read first: rows of an earlier version may not be appended to twice.
        changes = [
            (bag.name, _changes(part, bag))
            for own in segments
            for part in own
            for bag in held.bags
            if bag.name in part.files
        ]
        before = {bag.name: bag.snapshot for bag in held.bags}
        snapshots: dict[str, Snapshot] = {}
        for name, each in changes:
            snapshots[name] = snapshots.get(name, before[name]).followed(*each)
        return held.with_snapshots(snapshots)

    def _wants_snapshot(self) -> bool:
        """Whether newer rows are a large share of a table."""
        return any(
            bag.overlay_rows > _MOST_OVERLAY * max(1, bag.snapshot.base.size)
            for bag in self._version.collection.bags
        )

    def _serve(
        self,
        part: Part,
        collection: EmbeddingBagCollection,
        arrays: Mapping[str, torch.Tensor],
    ) -> None:
        dense, trains = split_dense(arrays)
        modules = {name: TTEmbeddingBag(arrays) for name, arrays in trains.items()}
        # A lookup reads this one attribute once, so it has one version.
        self._version = Version(
            part.number, part.step, part.time, collection, dense, modules
        )

    def _dense(self, part: Part) -> dict[str, torch.Tensor]:
        path = dense_path(part)
        if path is None:
            return {}
        file = open_file(path, dense=True)
        check_dense(part, file.header)
        return {n: x.to(self._device, copy=True) for n, x in file.tensors.items()}


def _changes(part: Part, bag: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Reads keys, rows and removed keys of one table in a segment."""
    file = open_file(delta_path(part.path, bag.name), delta=True)
    if file.header.link != part.files[bag.name]:
        raise DamagedFileError(file.path, "it is of another segment")
    return changes_in(file, bag.name, bag.dim)
