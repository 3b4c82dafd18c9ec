# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Puts what prefetchers have on devices, and lets the processes of a job agree.

Programs on the devices of several processes have to be started by all of them, in one
order and with equal shapes. A prefetcher decides by what it finds in its own store. So
its main thread exchanges a few numbers with each call, between the steps on the
devices.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_dynemb._src.ops import everywhere, on_every_process, settled
from jax_dynemb._src.table import Tables


class Alone:
    """Serves tables whose devices are all of this process."""

    is_alone = True
    split: Any = None  # where ids go

    def spread(self, tree: Any) -> Any:
        """Copies arrays [n, ...] to the devices."""
        return jax.device_put(tree)

    def whole(self, tree: Any) -> Any:
        """Copies arrays that every process has whole."""
        return jax.device_put(tree)

    def room(self, size: int) -> int:
        """Rounds up to what ``spread`` can split."""
        return size

    def own(self, array: Any) -> np.ndarray:
        """Reads what became of the entries that this process has spread."""
        return np.asarray(array)

    def of_all(
        self, state: Any, keys: Mapping[str, np.ndarray], held: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Returns the keys of all processes by table, see ``keys_on_host``."""
        del state, held
        return keys

    def send(self, state: Any, numbers: Sequence[int]) -> Any:
        """Starts an exchange of some numbers."""
        del state
        return list(numbers)

    def read(self, sent: Any) -> list[int]:
        """Returns of each number the largest of all processes."""
        return sent

    def most(self, state: Any, numbers: Sequence[int]) -> list[int]:
        """Sends and reads."""
        return self.read(self.send(state, numbers))

    def check(self, state: Any, check: Callable[[], None]) -> None:
        """Runs a check that may fail in one process, and then fails in all."""
        del state
        check()

    def check_apart(self, state: Any, places: Mapping[str, Any]) -> None:
        """Raises if two processes keep rows in the same place."""


class Together:
    """Serves tables whose shards lie on several processes, each some of its own.

    All processes make the same calls. What ``send`` has sent arrives before the step
    that follows it. So ``read`` in the next call of a prefetcher need not wait for a
    step; on CPUs ``settled`` waits.
    """

    is_alone = False

    def __init__(self, mesh: Mesh, axes: Sequence[str]):
        """Finds the shards of each process; NotImplementedError: they share some."""
        self.split = NamedSharding(mesh, PartitionSpec(tuple(axes)))
        self._everywhere = everywhere(self.split)
        self._first, self._shards, self._processes = _own_shards(self.split, axes)
        self._most = jax.jit(lambda x: x.max(axis=0), out_shardings=self._everywhere)

    def spread(self, tree: Any) -> Any:
        """Makes arrays [processes * n, ...] of the parts [n, ...] of all processes."""
        make = jax.make_array_from_process_local_data
        return jax.tree.map(lambda x: make(self.split, np.asarray(x)), tree)

    def whole(self, tree: Any) -> Any:
        """Copies arrays that every process has whole; arrays of JAX stay."""

        def copied(x: Any) -> jax.Array:
            if isinstance(x, jax.Array):
                return x
            return jax.make_array_from_process_local_data(self._everywhere, x)

        return jax.tree.map(copied, tree)

    def room(self, size: int) -> int:
        """Rounds up to what ``spread`` can split."""
        return -(-size // self._shards) * self._shards

    def own(self, array: Any) -> np.ndarray:
        """Reads what became of the entries that this process has spread."""
        size = array.shape[0] // self._processes
        begin = self._first // self._shards * size
        found, known = np.zeros(array.shape, array.dtype), np.zeros(len(array), bool)
        for each in array.addressable_shards:
            found[each.index], known[each.index[0]] = each.data, True
        assert known[begin : begin + size].all()
        return found[begin : begin + size]

    def of_all(
        self, state: Any, keys: Mapping[str, np.ndarray], held: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Returns the keys of all processes by table, see ``keys_on_host``."""
        del keys
        settled(state)
        return settled(jax.tree.map(on_every_process, dict(held)))

    def send(self, state: Any, numbers: Sequence[int]) -> jax.Array:
        """Starts an exchange of some numbers, behind the programs of a state."""
        settled(state)
        rows = np.tile(np.array(numbers, np.int32), (self._shards, 1))
        return settled(self._most(self.spread(rows)))

    def read(self, sent: jax.Array) -> list[int]:
        """Waits for an exchange: of each number the largest of all processes."""
        return np.asarray(sent).tolist()

    def most(self, state: Any, numbers: Sequence[int]) -> list[int]:
        """Returns of each number the largest of all processes; waits for devices."""
        return self.read(self.send(state, numbers))

    def check(self, state: Any, check: Callable[[], None]) -> None:
        """Runs a check that may fail in one process, and then fails in all."""
        error = None
        try:
            check()
        except Exception as raised:
            error = raised
        (failed,) = self.most(state, [int(error is not None)])
        if error is not None:
            raise error
        if failed:
            raise RuntimeError(
                "the prefetcher of another process refuses its store; its error says "
                "why."
            )

    def check_apart(self, state: Any, places: Mapping[str, Any]) -> None:
        """Raises if two processes keep rows in the same place.

        Args:
          state: behind whose programs they exchange the places.
          places: by table; None: a place of this process, such as files that it locks.
        """
        known = {n: zlib.crc32(repr(x).encode()) & 2**31 - 1 for n, x in places.items()}
        own = [0 if places[n] is None else known[n] for n in sorted(places)]
        settled(state)
        rows = self.spread(np.tile(np.array(own, np.int32), (self._shards, 1)))
        all_rows = np.asarray(settled(on_every_process(rows)))[:: self._shards]
        for name, column in zip(sorted(places), all_rows.T, strict=True):
            used = column[column != 0]
            if len(np.unique(used)) < len(used):
                raise ValueError(
                    f"Several processes keep rows of table '{name}' in {places[name]}. "
                    "Give each a place of its own, such as jde.stores.Redis(url, "
                    "table, name=f'rows-{jax.process_index()}')."
                )


Places = Alone | Together


def places_of(coll: Tables) -> Places:
    """Finds out whether other processes have parts of some tables.

    Raises:
      NotImplementedError: two processes have the same shard.
    """
    layout = coll.hash_engine.layout
    if not layout.spans_processes:
        return Alone()
    assert isinstance(layout.mesh, Mesh)  # a prefetcher runs outside of every program
    return Together(layout.mesh, layout.axes)


def _own_shards(split: NamedSharding, axes: Sequence[str]) -> tuple[int, int, int]:
    """Finds this process's first shard, how many it has, and how many processes."""
    shards = math.prod(split.mesh.shape[axis] for axis in axes)
    found: dict[int, set[int]] = {}
    for device, (index,) in split.devices_indices_map((shards,)).items():
        found.setdefault(device.process_index, set()).add(index.start or 0)
    own = sorted(found[jax.process_index()])
    ranges = sorted(sorted(each) for each in found.values())
    each = shards // len(ranges)
    wanted = [list(range(n * each, (n + 1) * each)) for n in range(len(ranges))]
    if ranges != wanted:
        raise NotImplementedError(
            "jde.tiers.prefetch_rows needs shards that follow each other on each "
            f"process, as many on all; here processes have the shards {ranges}. Give "
            "the mesh jax.devices() in their order, and axis= the axes that cross "
            "processes."
        )
    return own[0], each, len(ranges)
