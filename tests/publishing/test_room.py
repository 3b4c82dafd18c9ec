# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Buffers of segments follow how many rows change."""

from jax_dynemb._src.serving.room import Room


def test_a_room_grows_at_once_and_shrinks_after_small_segments():
    room = Room()
    assert room.rows == 4096
    room.overflowed(100_000)
    assert room.rows == 131_072
    for _ in range(15):
        room.held(12_000)
    assert room.rows == 131_072
    room.held(9_000)
    assert room.rows == 16_384
    for _ in range(40):
        room.held(10)
    assert room.rows == 4096
