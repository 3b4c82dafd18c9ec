# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Two processes prepare GPUs that neither has; prints what they agree on.

Memory of a GPU is a file in memory here, so descriptors travel as they do with GPUs.
Started by test_peer_processes.py.
"""

import json
import os
import sys
import types
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

import jax_dynemb as jde
from jax_dynemb._src.engines.hash.layouts import hosts, peer_processes, peers
from jax_dynemb._src.engines.hash.layouts.placement import make_placement
from jax_dynemb._src.ops import SharedMemory

BYTES, OFFSET = 4096, 128
_MAPPED = 1 << 40


class Gpus:
    """Stands for the GPUs of this process and for what CUDA does with them."""

    def __init__(self, fault: str) -> None:
        is_faulty = jax.process_index() == 1
        self.limit = BYTES + 1 if fault == "piecemeal" and is_faulty else BYTES
        self.is_wrong = fault == "other memory" and is_faulty
        self.fails = fault == "unreachable" and is_faulty
        self.memory: dict[int, int] = {}
        self.prepared: list[list] = []
        self.mapped = 0

    def device(self, process: int, ordinal: int) -> types.SimpleNamespace:
        return types.SimpleNamespace(
            id=10 * process + ordinal,
            process_index=process,
            platform="gpu",
            local_hardware_id=ordinal if process == jax.process_index() else None,
            memory_stats=lambda: {"bytes_limit": self.limit},
        )

    def mark(self, device, word):
        file = self.memory[device.local_hardware_id] = os.memfd_create("gpu")
        os.pwrite(file, bytes(OFFSET) + word, 0)
        return None, self._begin(device.local_hardware_id) + OFFSET

    def share_memory(self, ordinal, address):
        begin = self._begin(ordinal)
        assert begin <= address < begin + BYTES
        if self.is_wrong:
            os.pwrite(self.memory[ordinal], bytes(OFFSET + 8), 0)
        return SharedMemory(self.memory.pop(ordinal), begin, BYTES)

    def make_mailbox(self, ordinals):
        file = os.memfd_create("mailbox")
        os.pwrite(file, bytes(8), 0)
        return SharedMemory(file, 7000 + ordinals[0], 8)

    def map_memory(self, ordinals, fd, size, offset=0):
        assert ordinals and all(ordinal in (0, 1) for ordinal in ordinals)
        assert size in (8, BYTES)
        self.mapped += 1
        word = os.pread(fd, 8, offset)
        return _MAPPED * self.mapped, int.from_bytes(word, "little")

    def prepare_peers(self, members):
        self.prepared.append([list(member) for member in members])
        return "it has no room" if self.fails else ""

    def _begin(self, ordinal):
        return 10**6 * (1 + ordinal) + 10**7 * jax.process_index()


def main(cases: list[list[str]]) -> None:
    """Prepares groups once for each case, a fault of process 1 and a grouping."""
    jde.distributed.ensure_initialized()
    multihost_utils.process_allgather(np.zeros(1))  # opens connections
    print("RESULT " + json.dumps([prepare(*case) for case in cases]))


class GpuMesh:
    """Stands for a mesh of GPUs with one axis."""

    axis_names = ("data",)
    is_multi_process = True

    def __init__(self, devices: np.ndarray) -> None:
        self.devices = devices.reshape(-1)
        self.shape = {"data": self.devices.size}


def prepare(fault: str, grouping: str) -> dict:
    """Prepares groups across the processes, within each, or one of all GPUs.

    Or finds the hosts of a mesh, "by host" or with devices of all hosts "mixed". Or
    makes "tables" of which a user gives the room.
    """
    gpus = Gpus(fault)
    for name in ("share_memory", "make_mailbox", "map_memory", "prepare_peers"):
        setattr(peer_processes, name, getattr(gpus, name))
    peer_processes._mark = gpus.mark  # pyright: ignore[reportAttributeAccessIssue]
    is_elsewhere = fault == "hosts" and jax.process_index() == 1
    peer_processes._host = lambda: "another" if is_elsewhere else "one"
    groups = np.array(
        [[gpus.device(process, ordinal) for process in (0, 1)] for ordinal in (0, 1)],
        object,
    )
    shaped = {"across": groups, "within": groups.T, "all": groups.reshape(1, 4)}
    before, found = len(os.listdir("/proc/self/fd")), None
    if grouping in shaped:
        reason = peer_processes.prepare(shaped[grouping])
    elif grouping == "tables":
        reason = place_tables(groups.T)
    else:
        found, reason = hosts_of(groups.T if grouping == "by host" else groups)
    for file in gpus.memory.values():
        os.close(file)
    left = len(os.listdir("/proc/self/fd")) - before
    said = {"reason": reason, "prepared": gpus.prepared, "descriptors left": left}
    return said | {"hosts": found}


def mesh_of(devices: np.ndarray) -> Any:
    """Makes a mesh of stand-ins, of which no process knows the hosts yet."""
    peer_processes.hosts.cache_clear()
    peers.Mesh = GpuMesh  # pyright: ignore[reportAttributeAccessIssue]
    return GpuMesh(devices)


def hosts_of(devices: np.ndarray) -> tuple[list[int], str]:
    """Finds hosts of a mesh: how many, with how many devices, and what lacks."""
    found = hosts.hosts_of(mesh_of(devices), ("data",), "auto", None)
    return [found.count, found.devices], found.peers.reason


def place_tables(devices: np.ndarray) -> str:
    """Places tables, then a traced program looks at their links."""
    placement = make_placement(mesh_of(devices), "data", 0.5, None, "auto")

    @jax.jit
    def count(x):
        return x + len(placement.links.peers)

    assert int(count(0)) == devices.size
    return placement.peers.reason


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
