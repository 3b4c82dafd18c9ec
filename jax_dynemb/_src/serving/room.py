# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses how many rows the buffers of a segment hold."""

from __future__ import annotations

from collections import deque

_FIRST = 4096  # rows
_COUNTS = 16  # that are looked back at


class Room:
    """Follows how many rows change between two segments.

    The device copies whole buffers, so large ones cost each segment. A small one costs
    a moment that is not published. Each size is a program.
    """

    def __init__(self) -> None:
        self.rows = _FIRST
        self._counts: deque[int] = deque(maxlen=_COUNTS)

    def overflowed(self, count: int) -> None:
        """Makes room for what changed."""
        self.rows = _roomy(count)
        self._counts.clear()

    def held(self, count: int) -> None:
        """Notes a segment; after several small ones the room shrinks."""
        self._counts.append(count)
        if len(self._counts) == _COUNTS:
            self.rows = min(self.rows, max(_FIRST, _roomy(max(self._counts))))


def _roomy(count: int) -> int:
    """Returns at least a quarter more, as a power of two: sizes are few."""
    return 1 << (5 * count // 4).bit_length()
