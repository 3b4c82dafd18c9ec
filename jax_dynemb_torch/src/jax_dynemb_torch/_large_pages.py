# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Memory in pages of 2 MB, where the system has such."""

from __future__ import annotations

import mmap

import torch

_PAGE = 2 << 20
_MOST = 64 << 20  # bytes; more than that stays mapped, and shared by processes


def in_large_pages(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in large pages; the tensor itself if that is not to be had.

    What is read in random places costs less: a processor remembers where 2,000 pages
    are, and of 4 KB these are 8 MB.

    Args:
      tensor: contiguous, on the CPU.
    """
    advice = getattr(mmap, "MADV_HUGEPAGE", None)  # of Linux
    if advice is None or not _PAGE <= tensor.nbytes <= _MOST:
        return tensor
    # Private: shared memory, mmap's default, has large pages on few systems.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    room = mmap.mmap(-1, tensor.nbytes + _PAGE, flags=flags)
    try:
        room.madvise(advice)
    except OSError:  # a kernel without them
        return tensor
    begin = -torch.frombuffer(room, dtype=torch.uint8).data_ptr() % _PAGE
    placed = torch.frombuffer(
        room, dtype=tensor.dtype, count=tensor.numel(), offset=begin
    )
    return placed.view(tensor.shape).copy_(tensor)
