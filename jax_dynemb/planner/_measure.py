# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Times lookups, updates and exchanges on the devices of a mesh."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_dynemb._ids import ids as make_ids
from jax_dynemb.config import TableConfig
from jax_dynemb.initializers import zeros
from jax_dynemb.planner._work import rows_work
from jax_dynemb.table import Tables

DIM = 32
IDS = (512, 16_384)  # of a device, small and large
FLOATS = (64, 1 << 18)  # that a device sends another
REPEATS = 7
STEPS = 8


def measure(mesh: Mesh, axis: Any) -> dict[str, Any]:
    """See ``Topology.measure``; returns its fields."""
    axes = (
        mesh.axis_names if axis is None else (axis,) if isinstance(axis, str) else axis
    )
    axes = tuple(axes)
    world = math.prod(mesh.shape[a] for a in axes)
    device = mesh.devices.flat[0]
    link, latency = math.inf, 0.0
    if world > 1:
        sent = [4.0 * n * (world - 1) for n in FLOATS]
        link, latency = _line(sent, [_time_exchange(mesh, axes, n) for n in FLOATS])
    steps = [_time_step(mesh, axes, n, link) for n in IDS]
    bandwidth, overhead = _line([_step_bytes(n) for n in IDS], steps)
    overhead = max(overhead - 3 * latency, 0.0)
    if world == 1:
        link = bandwidth
    numbers = [float(_memory(device, mesh.size)), bandwidth, link, latency, overhead]
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        both = np.frombuffer(np.array(numbers).tobytes(), np.uint32)
        both = multihost_utils.broadcast_one_to_all(both)
        numbers = np.frombuffer(np.asarray(both).tobytes(), np.float64).tolist()
    cap, bandwidth, link, latency, overhead = numbers
    local = world // jax.process_count() if world % jax.process_count() == 0 else world
    return {
        "world_size": world,
        "local_world_size": max(1, local),
        "compute_device": "cpu" if device.platform == "cpu" else "cuda",
        "hbm_cap": int(cap),
        "hbm_mem_bw": bandwidth,
        "intra_host_bw": link,
        "inter_host_bw": link,
        "collective_latency": latency,
        "step_overhead": overhead,
    }


def _line(sizes: list[float], seconds: list[float]) -> tuple[float, float]:
    """Returns bytes a second, and the seconds of nothing."""
    (small, large), (first, second) = sizes, seconds
    slope = max((second - first) / (large - small), 1e-15)
    return 1 / slope, max(first - small * slope, 0.0)


def _step_bytes(ids: int) -> float:
    """Returns what a step of ``_time_step`` moves, by the model of the planner."""
    work = rows_work(ids, ids, ids, ids, DIM, 4, 4, 4, 0, ids)
    return float(sum(work.everywhere) + sum(work.owner))


def _time_step(mesh: Mesh, axes: tuple[str, ...], count: int, link: float) -> float:
    """Times the step of a row-wise table, without what its exchanges send."""
    shards = math.prod(mesh.shape[a] for a in axes)
    table = TableConfig("t", DIM, 2 * shards * count, initializer=zeros())
    coll = Tables([table], mesh=mesh, axis=axes, exchange_factor=1.0)
    keys = np.random.default_rng(0).permutation(shards * count)
    split = NamedSharding(mesh, PartitionSpec(axes))
    ids = {"t": jax.device_put(make_ids(keys), split)}

    def step(_: Any, state: Any) -> Any:
        rows, residual, state = coll.lookup(state, ids)
        return coll.apply_gradients(state, residual, rows)

    @functools.partial(jax.jit, donate_argnums=0)
    def several(state: Any) -> Any:
        return jax.lax.fori_loop(0, STEPS, step, state)

    state = jax.block_until_ready(several(coll.init(0)))
    fastest = math.inf
    for _ in range(REPEATS):
        begin = time.perf_counter()
        state = jax.block_until_ready(several(state))
        fastest = min(fastest, time.perf_counter() - begin)
    (moved,) = coll.plan({"t": count}).tables
    sent = moved.id_bytes + moved.row_bytes + moved.gradient_bytes
    return fastest / STEPS - sent * (shards - 1) / shards / link


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
        begin = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - begin)
    return min(times)


def _memory(device: Any, devices: int) -> int:
    limit = (device.memory_stats() or {}).get("bytes_limit")
    if limit:
        return int(limit)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // devices
