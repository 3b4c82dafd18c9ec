# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A perfect hash of int64 keys: each key has a slot of its own, which says its place.

The arrays are those of jax_dynemb/_src/files/safetensors/perfect_hash.py, which writes
them into files and says how they work. Here they are read.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch

PLAIN, FOLDED, MIXED = 0, 1, 2  # kinds: what is done beside the product

_WHOLE = 98_304  # ids at a time: each call into PyTorch costs some microseconds,
_PIECE = 16_384  # and of more ids, what is between the steps should stay in a cache
_LOWEST_BYTE = 0 if sys.byteorder == "little" else 7  # of an int64


class PerfectHash(NamedTuple):
    """The arrays of a hash.

    Attributes:
      numbers: int64[5]: multiplier, bits, group_bits, shift, and the kind: PLAIN,
        FOLDED or MIXED.
      words: int64[2**bits].
      pilots: uint8[2**group_bits].
    """

    numbers: torch.Tensor
    words: torch.Tensor
    pilots: torch.Tensor


class Steps(NamedTuple):
    """The numbers of a hash as ``find`` takes them: integers, or tensors without axes.

    For PyTorch an integer becomes such a tensor in each operation, which takes a CPU
    as long as the operation itself if there is one id.
    """

    multiplier: Any
    shift: Any
    group_mask: Any
    slot_mask: Any
    fold_shift: Any
    fold_mask: Any
    multiplied: Any
    kind: Any

    def as_tensors(self) -> Steps:
        """Tensors on the CPU, for ``low_bytes`` in place of pilots."""
        steps = self._replace(group_mask=self.group_mask | 255)
        kept = torch.tensor(steps[:-2], dtype=torch.int64).unbind()
        return Steps(*kept, self.multiplied, self.kind)


def steps_of(numbers: torch.Tensor) -> Steps:
    """What follows from the numbers of a hash."""
    multiplier, bits, group_bits, shift, kind = numbers.tolist()
    if kind not in (PLAIN, FOLDED, MIXED):
        raise ValueError(
            f"the index is of kind {kind}, which this jax_dynemb_torch does not know. "
            "Upgrade it."
        )
    masks = (1 << group_bits) - 1, (1 << bits) - 1
    fold = 32, 0xFFFF_FFFF
    return Steps(multiplier, shift, *masks, *fold, multiplier != 1, kind)


def find(
    ids: torch.Tensor,
    steps: Steps,
    words: torch.Tensor,
    pilots: torch.Tensor,
    last: int,
) -> torch.Tensor:
    """Looks up where ids stand.

    The same array operations without branches on a CPU and a GPU, and under
    ``torch.export``.

    Args:
      ids: int64[n].
      steps: of the hash.
      words: of the hash.
      pilots: of the hash.
      last: the number behind the last place.

    Returns:
      int64[n]: places; 0 or ``last`` for an id that is not among the keys.
    """
    y = _y(ids, steps)
    top = y.bitwise_right_shift(steps.shift)
    pilot = pilots.index_select(0, top.bitwise_and(steps.group_mask))
    slot = top.bitwise_xor_(y).bitwise_xor_(pilot).bitwise_and_(steps.slot_mask)
    return words.index_select(0, slot).bitwise_xor_(y).clamp_(0, last)


def find_on_cpu(
    ids: torch.Tensor,
    steps: Steps,
    words: torch.Tensor,
    low_bytes: torch.Tensor,
    last: int,
) -> torch.Tensor:
    """The same on a CPU, with fewer operations and many ids piece by piece.

    Args:
      ids: int64[n].
      steps: of the hash, ``as_tensors``.
      words: of the hash.
      low_bytes: what ``low_bytes`` makes of the pilots.
      last: the number behind the last place.
    """
    rest = steps, words, low_bytes, last
    count = ids.shape[0]
    if count <= _WHOLE:
        return _find_piece(ids, *rest, None)
    pieces = -(-count // _PIECE)
    size = -(-count // (8 * pieces)) * 8  # whole lines of a cache
    places = torch.empty_like(ids)
    for begin in range(0, count, size):
        # Slices: Tensor.split takes as long as several operations.
        _find_piece(ids[begin : begin + size], *rest, places[begin : begin + size])
    return places


def low_bytes(pilots: torch.Tensor) -> torch.Tensor:
    """What the lowest byte of ``top`` becomes, if a pilot is to be added by xor.

    Args:
      pilots: of the hash.

    Returns:
      uint8[max(2**group_bits, 256)]: by the lowest bits of ``top``.
    """
    top = torch.arange(max(len(pilots), 256))
    return pilots[top & (len(pilots) - 1)] ^ (top & 255).to(torch.uint8)


def _find_piece(
    ids: torch.Tensor,
    steps: Steps,
    words: torch.Tensor,
    low_bytes: torch.Tensor,
    last: int,
    places: torch.Tensor | None,
) -> torch.Tensor:
    y = _y(ids, steps)
    top = y.bitwise_right_shift(steps.shift)
    group = top.bitwise_and(steps.group_mask)
    # Written there: an xor of numbers and bytes would take three times as long.
    lowest = top.view(torch.uint8)[_LOWEST_BYTE::8]
    torch.index_select(low_bytes, 0, group, out=lowest)
    slot = top.bitwise_xor_(y).bitwise_and_(steps.slot_mask)
    # The groups are no longer needed: memory that is in a cache.
    found = torch.index_select(words, 0, slot, out=group if places is None else places)
    return found.bitwise_xor_(y).clamp_(0, last)


def _y(ids: torch.Tensor, steps: Steps) -> torch.Tensor:
    if steps.kind != PLAIN:
        ids = _folded(ids, steps)
    y = ids.mul(steps.multiplier) if steps.multiplied else ids
    return _folded(y, steps) if steps.kind == MIXED else y


def _folded(x: torch.Tensor, steps: Steps) -> torch.Tensor:
    high = x.bitwise_right_shift(steps.fold_shift)
    return high.bitwise_and_(steps.fold_mask).bitwise_xor_(x)
