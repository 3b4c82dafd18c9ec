# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Times exchanges and steps on the devices of a mesh."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.planner import probes as _probes
from jax_dynemb._src.planner.rates import KINDS, Rates, fitted

# That a device sends another. 1 MiB takes a link of GPUs less time than a collective
# varies by. On a CPU large ones leave its caches, and rarely occur.
FLOATS, FLOATS_ON_CPU = (64, 1 << 22), (64, 1 << 14)
REPEATS = 5
# Over all steps: other work of the machine that takes a second then delays few of them.
PASSES = 2
STEPS = 8


def measure(mesh: Mesh, axis: Any) -> dict[str, Any]:
    """See ``Topology.measure``; returns its fields."""
    axes = _axes(mesh, axis)
    world = math.prod(mesh.shape[a] for a in axes)
    device = mesh.devices.flat[0]
    link, latency = math.inf, 0.0
    if world > 1:
        floats = FLOATS_ON_CPU if device.platform == "cpu" else FLOATS
        sent = [4.0 * n * (world - 1) for n in floats]
        link, latency = _line(sent, [_time_exchange(mesh, axes, n) for n in floats])
    rates = _rates(mesh, axes, link)
    numbers = [float(_memory(device, mesh.size)), link, latency]
    numbers += [x for kind in KINDS for x in dataclasses.astuple(rates[kind])]
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        both = np.frombuffer(np.array(numbers).tobytes(), np.uint32)
        both = multihost_utils.broadcast_one_to_all(both)
        numbers = np.frombuffer(np.asarray(both).tobytes(), np.float64).tolist()
    cap, link, latency, *rest = numbers
    by_kind = np.reshape(rest, (len(KINDS), -1)).tolist()
    known = {kind: Rates(*some) for kind, some in zip(KINDS, by_kind, strict=True)}
    # A fit may blame the bytes of one kind on something else, hardly those of all.
    bandwidth = 1 / max(1e-15, *(rates.row_byte for rates in known.values()))
    local = world // jax.process_count() if world % jax.process_count() == 0 else world
    return {
        "world_size": world,
        "local_world_size": max(1, local),
        "compute_device": "cpu" if device.platform == "cpu" else "cuda",
        "hbm_cap": int(cap),
        "hbm_mem_bw": bandwidth,
        "intra_host_bw": link if world > 1 else bandwidth,
        "inter_host_bw": link if world > 1 else bandwidth,
        "collective_latency": latency,
        "step_overhead": known["rows"].call,
        "at_once": _at_once(device, world),
        "rates": known,
    }


def _axes(mesh: Any, axis: Any) -> tuple[str, ...]:
    if not isinstance(mesh, Mesh):
        raise TypeError(
            f"Topology.measure takes a jax.sharding.Mesh, not {kind_of(mesh)}: write "
            "jax.make_mesh((jax.device_count(),), ('data',))."
        )
    named = (axis,) if isinstance(axis, str) else axis
    axes = tuple(mesh.axis_names if named is None else named)
    if unknown := [a for a in axes if a not in mesh.axis_names]:
        raise ValueError(
            f"Topology.measure: the mesh has no axis {unknown}; its axes are "
            f"{list(mesh.axis_names)}."
        )
    return axes


def _at_once(device: Any, world: int) -> int:
    """Devices that compute at the same time: forced CPU devices share cores."""
    if device.platform != "cpu":
        return world
    local = max(1, min(world, jax.local_device_count()))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else local
    return max(1, round(world * min(local, cores) / local))


def _line(sizes: list[float], seconds: list[float]) -> tuple[float, float]:
    """Returns bytes a second, and the seconds of nothing."""
    (small, large), (first, second) = sizes, seconds
    slope = max((second - first) / (large - small), 1e-15)
    return 1 / slope, max(first - small * slope, 0.0)


def _rates(mesh: Mesh, axes: tuple[str, ...], link: float) -> dict[str, Rates]:
    """Fits the constants of every kind of step to the times of its probes."""
    steps, probes = [], _probes.probes_of(mesh, axes)
    passes = [[probe.fastest(REPEATS) for probe in probes] for _ in range(PASSES)]
    for probe, *times in zip(probes, *passes, strict=True):
        taken = min(times)
        seconds = max(taken - probe.sent / link, taken / 4)
        steps.append((probe.kind, probe.counted, seconds))
    return fitted(steps)


def _time_exchange(mesh: Mesh, axes: tuple[str, ...], count: int) -> float:
    shards = math.prod(mesh.shape[a] for a in axes)
    split = PartitionSpec(axes)

    @jax.jit
    @functools.partial(
        jax.shard_map, mesh=mesh, in_specs=split, out_specs=split, check_vma=False
    )
    def run(x: jax.Array) -> jax.Array:
        def once(_: Any, x: jax.Array) -> jax.Array:
            return jax.lax.all_to_all(x, axes, 0, 0, tiled=True)

        return jax.lax.fori_loop(0, STEPS, once, x)

    shape = (shards * shards, count)
    x = jax.device_put(np.zeros(shape, np.float32), NamedSharding(mesh, split))
    jax.block_until_ready(run(x))
    return _fastest(lambda: run(x)) / STEPS


def _fastest(function: Callable[[], Any]) -> float:
    times = []
    for _ in range(REPEATS):
        begin = _probes.clock()
        jax.block_until_ready(function())
        times.append(_probes.clock() - begin)
    return min(times)


def _memory(device: Any, devices: int) -> int:
    limit = (device.memory_stats() or {}).get("bytes_limit")
    if limit:
        return int(limit)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // devices
