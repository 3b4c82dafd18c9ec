# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of a click log, and where each epoch's rows come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

import jax_dynemb as jde

PADDING = -1


@dataclasses.dataclass(frozen=True)
class Clicks:
    """A click log in time order.

    Attributes:
      ids: hashed 64-bit ids of every feature, `int64[n]`, or `int64[n, most]` with -1
        as padding where a row holds several values.
      dense: plain numbers of every row, `float32[n, d]`; `d` may be 0.
      labels: 1 for a click, 0 for none, `float32[n]`.
      weights: 1 for a row that counts, 0 for one that fills up a batch, `float32[n]`.
    """

    ids: Mapping[str, np.ndarray]
    dense: np.ndarray
    labels: np.ndarray
    weights: np.ndarray

    @classmethod
    def make(
        cls,
        ids: Mapping[str, np.ndarray],
        labels: np.ndarray,
        dense: np.ndarray | None = None,
    ) -> Clicks:
        """Builds a log whose rows all count."""
        rows = len(labels)
        dense = np.zeros((rows, 0)) if dense is None else dense
        weights = np.ones(rows, np.float32)
        return cls(ids, dense.astype(np.float32), labels.astype(np.float32), weights)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.labels)

    def take(self, rows: np.ndarray | slice) -> Clicks:
        """Keeps the given rows, in the given order."""
        ids = {name: column[rows] for name, column in self.ids.items()}
        return Clicks(ids, self.dense[rows], self.labels[rows], self.weights[rows])

    def batches(
        self, size: int, rng: np.random.Generator | None = None
    ) -> Iterator[Clicks]:
        """Cuts the log into batches of one size, shuffled if `rng` is given.

        The last batch is filled up with rows of weight 0 whose ids are padding, so that
        every step has the same shapes and nothing is compiled twice.
        """
        order = np.arange(len(self)) if rng is None else rng.permutation(len(self))
        for start in range(0, len(self), size):
            yield self.take(order[start : start + size])._filled(size)

    def _filled(self, size: int) -> Clicks:
        missing = size - len(self)
        if missing == 0:
            return self
        return Clicks(
            {
                name: _grow(column, missing, PADDING)
                for name, column in self.ids.items()
            },
            _grow(self.dense, missing),
            _grow(self.labels, missing),
            _grow(self.weights, missing),
        )


@dataclasses.dataclass(frozen=True)
class Source:
    """What an example trains on.

    Attributes:
      title: one line for the report.
      parts: (training rows, test rows) of each epoch; fewer parts than epochs repeat.
      shuffle: whether an epoch visits its training rows in random order.
      defaults: settings that suit these rows where the user gives none.
      haste: factor on the usual learning rates; a stream is seen once and forgiving.
    """

    title: str
    parts: Sequence[tuple[Clicks, Clicks]]
    shuffle: bool
    defaults: Mapping[str, int]
    haste: float = 1.0

    def epoch(self, number: int) -> tuple[Clicks, Clicks]:
        """Returns the training and the test rows of epoch `number`, counted from 0."""
        return self.parts[number % len(self.parts)]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the id features."""
        return tuple(self.parts[0][0].ids)

    @property
    def dense_width(self) -> int:
        """Numbers a row carries beside its ids."""
        return self.parts[0][0].dense.shape[1]


def split_by_time(clicks: Clicks, test_share: float = 0.1) -> tuple[Clicks, Clicks]:
    """Cuts a log in time order: rows to train on, and later rows to test on."""
    cut = round(len(clicks) * (1 - test_share))
    return clicks.take(slice(0, cut)), clicks.take(slice(cut, None))


def hash_column(feature: str, values: ArrayLike, missing: str = "") -> np.ndarray:
    """Hashes one value a row to `int64[n]`; the missing value becomes padding."""
    distinct, place = np.unique(np.asarray(values, dtype=np.str_), return_inverse=True)
    ids = jde.hash_ids(distinct, salt=feature)
    return np.where(distinct == missing, PADDING, ids)[place]


def hash_lists(feature: str, values: Sequence[str]) -> np.ndarray:
    """Hashes the words of each row to `int64[n, most]`, padded at the end."""
    lines, place = np.unique(np.asarray(values, dtype=np.str_), return_inverse=True)
    words = [line.split() for line in lines]
    table = np.full((len(words), max(1, *map(len, words))), PADDING, np.int64)
    for row, line in zip(table, words, strict=True):
        row[: len(line)] = hash_column(feature, line) if line else PADDING
    return table[place]


def _grow(column: np.ndarray, rows: int, value: int = 0) -> np.ndarray:
    filler = np.full((rows, *column.shape[1:]), value, column.dtype)
    return np.concatenate([column, filler])
