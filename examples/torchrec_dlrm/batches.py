# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Batches of dense numbers, bags of ids and labels; and random ones."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from jax_dynemb.torchrec import Capacity, KeyedJaggedTensor

# Columns of Criteo's data sets: 13 counts and 26 categories.
DEFAULT_INT_NAMES = [f"int_{i}" for i in range(13)]
DEFAULT_CAT_NAMES = [f"cat_{i}" for i in range(26)]


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Batch:
    """Holds the examples of a step; a pytree.

    Attributes:
      dense_features: float32[B, numbers].
      sparse_features: B bags of each key.
      labels: [B], 0 or 1.
    """

    dense_features: Any
    sparse_features: KeyedJaggedTensor
    labels: Any

    def to(self, device: Any, non_blocking: bool = False) -> Batch:
        """Returns itself: the pipeline puts batches on devices."""
        return self


class RandomRecDataset:
    """Yields random batches; the first ones come again and again.

    Args:
      keys: names of the features.
      batch_size: examples.
      hash_size: ids are below it; of every key, unless there are `hash_sizes`.
      hash_sizes: of each key.
      ids_per_feature: the most ids of a bag; 2 if None.
      ids_per_features: of each key.
      num_dense: dense numbers of an example.
      manual_seed: of the generator; a random one if None.
      num_batches: how many to yield; endless if None.
      num_generated_batches: different ones; a negative number: all differ.
      min_ids_per_feature: the least ids of a bag; as the most ones where those are
        given, else 0.
      min_ids_per_features: of each key.
    """

    def __init__(
        self,
        keys: Sequence[str],
        batch_size: int,
        hash_size: int | None = None,
        hash_sizes: Sequence[int] | None = None,
        ids_per_feature: int | None = None,
        ids_per_features: Sequence[int] | None = None,
        num_dense: int = 50,
        manual_seed: int | None = None,
        num_batches: int | None = None,
        num_generated_batches: int = 10,
        min_ids_per_feature: int | None = None,
        min_ids_per_features: Sequence[int] | None = None,
    ):
        """Checks the sizes and makes the batches that come again."""
        least = min_ids_per_feature
        least = ids_per_feature if least is None else least
        self._keys, self._batch_size, self._num_dense = (
            list(keys),
            batch_size,
            num_dense,
        )
        self._sizes = hash_sizes or [hash_size or 100] * len(keys)
        self._most = ids_per_features or [ids_per_feature or 2] * len(keys)
        self._least = min_ids_per_features or [least or 0] * len(keys)
        if not len(self._sizes) == len(self._most) == len(self._least) == len(keys):
            raise ValueError(
                f"there are {len(keys)} keys, but {len(self._sizes)} hash_sizes, "
                f"{len(self._most)} ids_per_features and {len(self._least)} "
                "min_ids_per_features: give one number a key."
            )
        self._draw = np.random.default_rng(manual_seed)
        self._capacity = Capacity()  # few shapes, so few programs
        self._made = [self._batch() for _ in range(max(0, num_generated_batches))]
        self.num_batches = num_batches

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches, from the first one on."""
        endless = itertools.cycle(self._made) if self._made else iter(self._batch, None)
        return itertools.islice(endless, self.num_batches)

    def _batch(self) -> Batch:
        draw, batch = self._draw, self._batch_size
        bounds = zip(self._least, self._most, strict=True)
        lengths = [draw.integers(low, high + 1, batch) for low, high in bounds]
        sized = zip(self._sizes, lengths, strict=True)
        values = [draw.integers(0, size, each.sum()) for size, each in sized]
        sparse = KeyedJaggedTensor.from_lengths_sync(
            self._keys,
            np.concatenate(values),
            np.concatenate(lengths),
            capacity=self._capacity,
        )
        dense = draw.standard_normal((batch, self._num_dense), np.float32)
        return Batch(dense, sparse, draw.integers(0, 2, batch).astype(np.int32))
