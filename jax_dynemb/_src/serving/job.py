# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Lets the publishers of all processes of a job publish at the same moments."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_dynemb._src.ops import settled


class Said(NamedTuple):
    """Holds what publishers tell each other: of all of them, the largest.

    Attributes:
      busy: whether one still writes.
      due: whether one needs a snapshot.
      number: the newest that one has.
    """

    busy: bool
    due: bool
    number: int


class Job:
    """Exchanges a few numbers with each call, between the steps on the devices.

    All processes must make the same calls. The next call reads what one has sent, and
    by then the devices have it, so no call waits for a step that runs.
    """

    def __init__(self) -> None:
        """Finds one device of each process."""
        firsts: dict[int, Any] = {}
        for device in jax.devices():
            firsts.setdefault(device.process_index, device)
        mesh = Mesh(np.array([firsts[n] for n in sorted(firsts)]), ("process",))
        self._apart = NamedSharding(mesh, PartitionSpec("process"))
        everywhere = NamedSharding(mesh, PartitionSpec())
        self._most = jax.jit(lambda x: x.max(axis=0), out_shardings=everywhere)
        self._sent: jax.Array | None = None

    def send(self, said: Said) -> None:
        """Starts an exchange."""
        own = np.array([said], np.int32)
        array = jax.make_array_from_process_local_data(self._apart, own)
        self._sent = settled(self._most(array))

    def read(self) -> Said:
        """Waits for what was sent last, of all processes."""
        busy, due, number = np.asarray(self._sent).tolist()
        return Said(bool(busy), bool(due), number)
