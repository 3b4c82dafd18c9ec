# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Steps on tables that are sharded over several devices, beside a bare exchange.

    python benchmarks/bench_mesh.py                       # all devices, cases e, c
    python benchmarks/bench_mesh.py --devices 1,2,4 --cases e --json mesh.json
    python benchmarks/bench_mesh.py --cpu 8 --shrink 256  # forced CPU devices, tiny
    python benchmarks/bench_mesh.py --devices 2 --kernels 30  # where a GPU's time goes

Weak scaling: each device has the batch of the case. Strong scaling: the devices share
it. The tables have the size of the case in both. Beside the step stand the time of a
bare ``all_to_all`` of the same bytes (ids, rows and gradients) and that of the step of
one device on its share of the batch, without an exchange.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Result:
    """One measurement.

    Attributes:
      case: its name.
      scaling: "weak" or "strong".
      devices: how many.
      optimizer: of the tables.
      ids: of a batch, all devices together.
      step_ms: median of a step.
      alone_ms: the step of one device without a mesh, on a device's share of the batch.
      exchange_ms: bare ``all_to_all``s of the bytes that a step moves.
      exchange_share: ``exchange_ms / step_ms``.
      exchange_bytes: of one device in a step, padding and its own part included.
      link_gbps: bytes of one device that leave it, a second, in the bare exchange.
      explained: ``(alone_ms + exchange_ms) / step_ms``.
      overflows: lookups that needed more than one round.
      peak: the fullest section, as a share of its room.
      busy_ms: of a step, in which the first GPU worked, its waits for others included;
        0 if not asked for.
      seconds: this measurement took, compilation included.
    """

    case: str
    scaling: str
    devices: int
    optimizer: str
    ids: int
    step_ms: float
    alone_ms: float
    exchange_ms: float
    exchange_share: float
    exchange_bytes: int
    link_gbps: float
    explained: float
    overflows: int
    peak: float
    busy_ms: float
    seconds: float


def main() -> None:
    """Measures, prints a table and writes JSON."""
    options = _options()
    if options.cpu:
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    if options.cpu:
        jax.config.update("jax_num_cpu_devices", options.cpu)
    counts = [int(n) for n in options.devices.split(",")] if options.devices else None
    counts = counts or _powers_of_two(jax.device_count())
    results: list[Result] = []
    for name in options.cases.split(","):
        for devices in counts:
            for scaling in options.scaling.split(","):
                if devices == 1 and scaling == "strong":
                    continue  # the same as weak
                results.append(_measure(options, name, devices, scaling))
                _show(results)
    if options.json:
        rows = [dataclasses.asdict(result) for result in results]
        device = jax.devices()[0].device_kind
        Path(options.json).write_text(
            json.dumps({"device": device, "jax": jax.__version__, "results": rows})
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="e,c", help="of workloads.py")
    parser.add_argument("--devices", default="", help="e.g. 1,2,4; default: all powers")
    parser.add_argument("--scaling", default="weak,strong")
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--factor", type=float, default=0.5, help="exchange_factor")
    parser.add_argument("--pooled", default="auto", help="exchange_pooled")
    parser.add_argument("--dtype", default=None, help="exchange_dtype")
    parser.add_argument("--transport", default="auto", help="exchange_transport")
    parser.add_argument("--hosts", type=int, help="devices_per_host")
    parser.add_argument("--batches", type=int, default=2, help="batches in turn")
    parser.add_argument("--steps", type=int, default=100, help="steps of a repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--shrink", type=float, default=1, help="smaller cases")
    parser.add_argument("--kernels", type=int, default=0, help="print so many, by time")
    parser.add_argument("--cpu", type=int, default=0, help="forced CPU devices")
    parser.add_argument("--json", default="", help="write the figures here")
    return parser.parse_args()


def _measure(options: Any, name: str, devices: int, scaling: str) -> Result:
    import jax
    import numpy as np
    from jax.sharding import Mesh

    from suite import timing, workloads

    begin = time.perf_counter()
    case = workloads.CASES[name].scaled(1 / options.shrink)
    each = case.batch if scaling == "weak" else case.batch // devices
    share = dataclasses.replace(case, batch=each)
    whole = dataclasses.replace(case, batch=each * devices)
    mesh = Mesh(np.array(jax.devices()[:devices]), ("data",))
    alone = _collection(case, options)
    coll = _collection(case, options, mesh)
    effort = timing.Effort(repeats=options.repeats)
    step_ms, stats, busy = _time_step(coll, whole, options, effort)
    alone_ms, _, _ = _time_step(alone, share, options, effort)
    plan = coll.plan(dict.fromkeys(coll.features, share.ids_per_table)).tables
    kinds = ("id_bytes", "row_bytes", "gradient_bytes")
    sizes = [sum(getattr(t, kind) for t in plan) for kind in kinds]
    exchange_ms = _bare_exchange(mesh, sizes, effort, options.steps)
    room, peaks, overflows = (
        [value for key, value in stats.items() if key.endswith(f"/exchange_{counter}")]
        for counter in ("capacity", "peak", "overflows")
    )
    moved = sum(sizes)
    return Result(
        case=name,
        scaling=scaling,
        devices=devices,
        optimizer=options.optimizer,
        ids=whole.num_ids,
        step_ms=step_ms,
        alone_ms=alone_ms,
        exchange_ms=exchange_ms,
        exchange_share=exchange_ms / step_ms,
        exchange_bytes=moved,
        link_gbps=moved * (devices - 1) / devices / exchange_ms / 1e6,
        explained=(alone_ms + exchange_ms) / step_ms,
        overflows=int(max(overflows)),
        peak=max(p / r if r else 0.0 for p, r in zip(peaks, room, strict=True)),
        busy_ms=busy.ms if busy else 0.0,
        seconds=time.perf_counter() - begin,
    )


def _collection(case: Any, options: Any, mesh: Any = None) -> Any:
    """Tables with half again as many slots as rows."""
    import jax_dynemb as jde

    optimizer = getattr(jde.optim, options.optimizer)(1e-3)
    tables = [
        jde.TableConfig(
            f"t{table}",
            dim=case.dim,
            capacity=int(case.rows * 1.5),
            optimizer=optimizer,
            pooling="sum" if case.pooled else None,
            pooling_factors=(case.bag,) if case.pooled else (),
        )
        for table in range(case.tables)
    ]
    return jde.Tables(
        tables,
        mesh,
        exchange_factor=options.factor,
        exchange_dtype=options.dtype,
        exchange_pooled=options.pooled,
        exchange_transport=options.transport,
        devices_per_host=options.hosts,
    )


def _time_step(
    coll: Any, case: Any, options: Any, effort: Any
) -> tuple[float, dict[str, Any], Any]:
    """Milliseconds of a training step, the stats of the tables after it, its kernels.

    The rows of the batches are there before the first step that is timed.
    """
    import functools

    import jax
    from jax.sharding import NamedSharding

    import jax_dynemb as jde
    from suite import busy, timing, workloads

    placement = coll.placement
    split = placement and NamedSharding(placement.mesh, placement.split)
    shape = (case.batch, case.bag) if case.pooled else (case.ids_per_table,)
    make = jax.jit(
        lambda key: jax.random.normal(key, (*shape[:1], case.dim)) * 1e-3,
        out_shardings=split,
    )
    d_rows = {name: make(jax.random.key(n)) for n, name in enumerate(coll.features)}
    batches = []
    for seed in range(options.batches):
        columns = workloads.batch_ids(case, "zipf", seed)
        pairs = zip(coll.features, columns, strict=True)
        ids = {f: jde.ids(column.reshape(shape), sharding=split) for f, column in pairs}
        batches.append((ids, d_rows))

    @functools.partial(
        jax.jit,
        donate_argnums=0,
        compiler_options=jde.compiler_options(loops=placement is not None),
    )
    def step(state: Any, ids: Any, d_rows: Any) -> tuple[Any, Any]:
        rows, residual, state = coll.lookup(state, ids)
        return coll.apply_gradients(state, residual, d_rows), rows

    chain = timing.Chain(step, coll.init(seed=0), batches)
    times = timing.time_chain(chain, effort, steps=options.steps)
    stats, kernels = coll.stats(chain.carry), None
    if options.kernels and placement:
        kernels = busy.trace(lambda: chain.run(6), 6, gpus=":0")
    if kernels:
        print(f"{kernels.ms:.3f} ms busy, {kernels.kernels:.0f} kernels and copies")
        for name, us in list(kernels.by_name.items())[: options.kernels]:
            print(f"{us:10.1f} us  {name}")
    chain.close()
    return timing.milliseconds(times), stats, kernels


def _bare_exchange(mesh: Any, sizes: Any, effort: Any, steps: int) -> float:
    """Milliseconds of one ``all_to_all`` after the other, of so many bytes each."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    from suite import timing

    devices, spec = mesh.size, PartitionSpec("data")

    def body(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jax.lax.all_to_all(x, "data", 0, 0, tiled=True) for x in arrays)

    run = jax.jit(
        jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec),
        donate_argnums=tuple(range(len(sizes))),
    )
    shapes = [(devices * devices, max(1, size // 4 // devices)) for size in sizes]
    make = jax.jit(
        lambda: tuple(jnp.zeros(shape) for shape in shapes),
        out_shardings=NamedSharding(mesh, spec),
    )
    chain = timing.Chain(lambda carry: (run(*carry), 0), make(), [()])
    times = timing.time_chain(chain, effort, steps=steps)
    chain.close()
    return timing.milliseconds(times)


def _powers_of_two(count: int) -> list[int]:
    return [1 << i for i in range(count.bit_length()) if 1 << i <= count]


def _show(results: list[Result]) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = [field.name for field in dataclasses.fields(Result)]
    table = Table(title="Sharded steps")
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    for result in results:
        values = dataclasses.astuple(result)
        table.add_row(*(f"{v:.3f}" if isinstance(v, float) else str(v) for v in values))
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
