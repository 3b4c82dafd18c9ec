# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Layout: keys, strides and regions of one array, the static part of a tensor."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Self

import numpy as np

from jax_dynemb._src.torchrec.asserted import MisfitError
from jax_dynemb._src.torchrec.check import check_keys

Ranks = tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Misfit:
    """Says why the parts of a tensor do not fit each other.

    Attributes:
      sentence: what does not fit, and what to write.
      words: what TorchRec's validator says of it.
      offsets: those that were given, where lengths do not say them.
      made_at: the file and line that made it; two of other lines are equal.
    """

    sentence: str
    words: str
    offsets: tuple[int, ...] | None
    made_at: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where each key has its bags and its entries.

    Attributes:
      capacities: room for entries of each key. The region of a key begins where that
        of the key before it ends, and its live entries come first.
      stride: bags of every key, or of the largest one where they differ.
      ranks: bags of each key on each rank, where strides may differ; else None.
      inverse_keys: the keys of the rows of ``inverse_indices``; None without them.
      compact: entries of all keys lie one after the other, wherever data says.
      misfit: the error of what reads a bag; None if lengths, weights and strides fit.
    """

    keys: tuple[str, ...]
    strides: tuple[int, ...]
    capacities: tuple[int, ...]
    stride: int
    ranks: Ranks | None = None
    inverse_keys: tuple[str, ...] | None = None
    compact: bool = False
    misfit: Misfit | None = None

    @property
    def bag_starts(self) -> np.ndarray:
        """Where the bags of each key begin; int[F + 1]."""
        return starts(self.strides)

    @property
    def starts(self) -> np.ndarray:
        """Where the region of each key begins; int[F + 1]."""
        return starts(self.capacities)

    def select(self, indices: Sequence[int]) -> Self:
        """Keeps some keys, in this order; one may come twice."""
        keys = tuple(self.keys[i] for i in indices)
        kept = self.inverse_keys
        return dataclasses.replace(
            self,
            keys=keys,
            strides=tuple(self.strides[i] for i in indices),
            capacities=tuple(self.capacities[i] for i in indices),
            ranks=self.ranks and tuple(self.ranks[i] for i in indices),
            inverse_keys=kept and tuple(k for k in kept if k in keys),
        )


def starts(sizes: Sequence[int]) -> np.ndarray:
    """Where parts of these sizes begin, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, np.int64))]).astype(int)


def strides_of(
    keys: Sequence[str], bags: int, stride: int | None, ranks: Sequence | None
) -> tuple[tuple[str, ...], tuple[int, ...], int, Ranks | None]:
    """Computes the bags of each key, the common stride, and the bags on each rank.

    ``ranks`` is ``stride_per_key_per_rank``: a list of bag counts for each key.
    """
    keys = check_keys(keys)
    if ranks is not None and len(ranks):
        fixed = tuple(tuple(int(n) for n in row) for row in np.asarray(ranks).tolist())
        if len(fixed) != len(keys) or any(n < 0 for row in fixed for n in row):
            raise MisfitError(
                f"stride_per_key_per_rank has {len(fixed)} rows for the {len(keys)} "
                "keys: give a list of bag counts, 0 or more, for each key."
            )
        strides = tuple(map(sum, fixed))
        if sum(strides) != bags:
            raise MisfitError(
                f"stride_per_key_per_rank counts {sum(strides)} bags, but lengths "
                f"have {bags}: give one length for each bag."
            )
        return keys, strides, max(strides, default=0), fixed
    if not keys and bags:
        raise MisfitError(
            f"there are lengths of {bags} bags, but no keys: name one for each feature."
        )
    if not keys:
        return keys, (), stride or 0, None
    each = bags // len(keys) if stride is None else int(stride)
    if each * len(keys) != bags:
        raise MisfitError(
            f"{bags} lengths are not those of {len(keys)} keys with "
            f"{'one stride' if stride is None else f'stride {stride}'}: give "
            "len(keys) * stride lengths, or stride_per_key_per_rank where keys "
            "differ in their number of bags."
        )
    return keys, (each,) * len(keys), each, None
