# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Steps on tables that are sharded over several devices, beside a bare exchange.

    python benchmarks/bench_mesh.py                       # all devices, cases e, c
    python benchmarks/bench_mesh.py --devices 1,2,4 --cases e --json mesh.json
    python benchmarks/bench_mesh.py --cpu 8 --shrink 256  # forced CPU devices, tiny

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
import sys
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
    seconds: float


def main() -> None:
    """Measures, prints a table and writes JSON."""
    options = _options()
    if options.cpu:
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    if options.cpu:
        jax.config.update("jax_num_cpu_devices", options.cpu)
    sys.path.insert(0, str(Path(__file__).resolve().parent))
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
    parser.add_argument("--factor", type=float, default=1.0, help="exchange_factor")
    parser.add_argument("--dtype", default=None, help="exchange_dtype")
    parser.add_argument("--batches", type=int, default=2, help="batches in turn")
    parser.add_argument("--steps", type=int, default=20, help="steps of a repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--shrink", type=int, default=1, help="smaller cases")
    parser.add_argument("--cpu", type=int, default=0, help="forced CPU devices")
    parser.add_argument("--json", default="", help="write the figures here")
    return parser.parse_args()


def _measure(options: Any, name: str, devices: int, scaling: str) -> Result:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import dynamic_step
    import jax_dynemb as jde
    import timing
    import workloads

    begin = time.perf_counter()
    case = workloads.CASES[name].shrunk(options.shrink)
    if scaling == "weak":
        whole = dataclasses.replace(case, batch=case.batch * devices)
    else:
        whole = dataclasses.replace(case, batch=case.batch // devices * devices)
    share = dataclasses.replace(whole, batch=whole.batch // devices)
    mesh = Mesh(np.array(jax.devices()[:devices]), ("data",))
    split = NamedSharding(mesh, PartitionSpec("data"))
    effort = timing.Effort(repeats=options.repeats)
    alone_tables = dynamic_step.collection(case, options.optimizer)
    coll = jde.Tables(
        alone_tables.tables.values(),
        mesh=mesh,
        exchange_factor=options.factor,
        exchange_dtype=options.dtype,
    )

    def timed(coll: Any, case: Any, put: Any) -> tuple[float, dict[str, Any]]:
        batches = []
        d_rows = put(dynamic_step.gradients(coll, case))
        for seed in range(options.batches):
            ids = workloads.batch_ids(case, "zipf", seed)
            batches.append((put(dynamic_step.to_device(coll, case, ids)), d_rows))
        # Every row that a batch touches is there after the first round of batches.
        carry = (coll.init(seed=0), jnp.zeros((), jnp.uint32))
        step = dynamic_step.training_step(coll)
        times, carry = timing.time_steps(
            step, carry, batches, effort, steps=options.steps
        )
        return timing.milliseconds(times), coll.stats(carry[0])

    step_ms, stats = timed(coll, whole, lambda tree: jax.device_put(tree, split))
    alone_ms, _ = timed(alone_tables, share, lambda tree: tree)
    plan = coll.plan(dict.fromkeys(coll.features, share.ids_per_table)).tables
    kinds = ("id_bytes", "row_bytes", "gradient_bytes")
    sizes = [sum(getattr(t, kind) for t in plan) for kind in kinds]
    exchange_ms = _bare_exchange(mesh, sizes, effort, options.steps)
    moved = sum(sizes)
    room = [v for k, v in stats.items() if k.endswith("/exchange_capacity")]
    peaks = [v for k, v in stats.items() if k.endswith("/exchange_peak")]
    overflows = [v for k, v in stats.items() if k.endswith("/exchange_overflows")]
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
        peak=max(p / r for p, r in zip(peaks, room, strict=True)),
        seconds=time.perf_counter() - begin,
    )


def _bare_exchange(mesh: Any, sizes: Any, effort: Any, steps: int) -> float:
    """Milliseconds of one ``all_to_all`` after the other, of so many bytes each."""
    import functools

    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    import timing

    devices, spec = mesh.size, PartitionSpec("data")

    def body(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jax.lax.all_to_all(x, "data", 0, 0, tiled=True) for x in arrays)

    run = jax.jit(
        jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec),
        donate_argnums=tuple(range(len(sizes))),
    )
    make = functools.partial(jax.device_put, device=NamedSharding(mesh, spec))
    arrays = [
        make(jnp.zeros((devices * devices, max(1, size // 4 // devices)), jnp.float32))
        for size in sizes
    ]
    times, _ = timing.time_steps(
        lambda carry: (run(*carry), 0), tuple(arrays), [()], effort, steps=steps
    )
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
