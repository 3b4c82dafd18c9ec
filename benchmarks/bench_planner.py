# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Predicted steps of random sharding plans beside measured ones.

    python benchmarks/bench_planner.py                    # all devices, 20 plans
    python benchmarks/bench_planner.py --cpu 8 --json planner.json

Each plan gives every table a random sharding. The devices are measured first. Then the
steps of all plans run in turn, several times, and the fastest round of each counts. It
prints both times of each plan, their rank correlation, and the median error.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import time
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Result:
    """One plan.

    Attributes:
      shardings: by sharding, how many tables have it.
      predicted_ms: of a step.
      measured_ms: of a step.
    """

    shardings: dict[str, int]
    predicted_ms: float
    measured_ms: float


def main() -> None:
    """Measures, prints a table and writes JSON."""
    options = _options()
    if options.cpu:
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import numpy as np
    from jax.sharding import Mesh

    import jax_dynemb as jde

    if options.cpu:
        jax.config.update("jax_num_cpu_devices", options.cpu)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    topology = jde.Topology.measure(mesh)
    print(topology)
    rng = np.random.default_rng(options.seed)
    tables = _tables(rng, options, mesh.size)
    plans = [_random_plan(rng, topology, tables, options) for _ in range(options.plans)]
    steps = [_Step(mesh, tables, plan, options) for plan in plans]
    for _ in range(options.rounds):
        for step in steps:
            step.run()
    results = [_result(step) for step in steps]
    _show(results)
    if options.json:
        found = {
            "device": jax.devices()[0].device_kind,
            "topology": dataclasses.asdict(topology),
            "rank_correlation": _rank_correlation(results),
            "results": [dataclasses.asdict(result) for result in results],
        }
        Path(options.json).write_text(json.dumps(found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plans", type=int, default=20)
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--batch", type=int, default=256, help="examples of a device")
    parser.add_argument("--most-rows", type=float, default=3e4, help="of a table")
    parser.add_argument("--steps", type=int, default=4, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cpu", type=int, default=0, help="forced CPU devices")
    parser.add_argument("--json", default="", help="write the figures here")
    return parser.parse_args()


def _tables(rng: Any, options: Any, devices: int) -> list[Any]:
    """Tables of different sizes; half of them pool bags of 2 to 16 ids."""
    import jax_dynemb as jde

    tables = []
    for n in range(options.tables):
        pools = n % 2 == 1
        tables.append(
            jde.TableConfig(
                f"t{n}",
                dim=4 * devices * int(rng.choice([1, 2, 4])),
                capacity=int(10 ** rng.uniform(3.2, math.log10(options.most_rows))),
                pooling="sum" if pools else None,
                pooling_factors=(float(rng.integers(2, 17)) if pools else 1.0,),
                optimizer=jde.optim.adagrad(0.05),
                initializer=jde.initializers.uniform(-0.05, 0.05),
            )
        )
    return tables


def _random_plan(rng: Any, topology: Any, tables: list[Any], options: Any) -> Any:
    import jax_dynemb as jde

    names = ("row_wise", "table_wise", "column_wise", "replicated")
    # Some plans have one sharding for most tables, others a mixture.
    odds = rng.dirichlet([0.4] * len(names))
    constraints = {
        t.name: jde.ParameterConstraints(
            sharding_types=[str(rng.choice(names, p=odds))]
        )
        for t in tables
    }
    return jde.EmbeddingShardingPlanner(topology, options.batch, constraints).plan(
        tables
    )


class _Step:
    """Runs the step of one plan: a lookup and an update of all tables."""

    def __init__(self, mesh: Any, tables: list[Any], plan: Any, options: Any):
        import jax
        import numpy as np
        from jax.sharding import NamedSharding, PartitionSpec

        import jax_dynemb as jde

        self.plan, self.fastest = plan, float("inf")
        coll = jde.Tables(tables, mesh=mesh, plan=plan)
        split = NamedSharding(mesh, PartitionSpec("data"))
        rng = np.random.default_rng(0)
        examples = options.batch * mesh.size
        ids = {}
        for t in tables:
            size = int(t.pooling_factors[0])
            shape = (examples, size) if t.pooling else (examples,)
            keys = rng.integers(0, t.capacity // 2, shape)
            ids[t.name] = jax.device_put(jde.ids(keys), split)

        def one(_: Any, state: Any) -> Any:
            rows, residual, state = coll.lookup(state, ids)
            return coll.apply_gradients(state, residual, rows)

        def several(state: Any) -> Any:
            return jax.lax.fori_loop(0, options.steps, one, state)

        self._count = options.steps
        self._several = jax.jit(several, donate_argnums=0)
        self._state = jax.block_until_ready(self._several(coll.init(0)))

    def run(self) -> None:
        """Runs a round of steps; the time of the fastest one is kept."""
        import jax

        begin = time.perf_counter()
        self._state = jax.block_until_ready(self._several(self._state))
        seconds = time.perf_counter() - begin
        self.fastest = min(self.fastest, seconds / self._count)


def _result(step: _Step) -> Result:
    shardings: dict[str, int] = {}
    for each in step.plan.tables:
        shardings[each.sharding] = shardings.get(each.sharding, 0) + 1
    return Result(dict(sorted(shardings.items())), step.plan.ms, step.fastest * 1e3)


def _show(results: list[Result]) -> None:
    import numpy as np

    for each in sorted(results, key=lambda r: r.measured_ms):
        shardings = ", ".join(f"{n} {kind}" for kind, n in each.shardings.items())
        print(f"{each.predicted_ms:10.3f} {each.measured_ms:10.3f} ms  {shardings}")
    ratios = [r.predicted_ms / r.measured_ms for r in results]
    errors = [abs(r.predicted_ms / r.measured_ms - 1) for r in results]
    print(f"predicted / measured: {min(ratios):.2f} to {max(ratios):.2f}")
    print(f"median error: {np.median(errors):.0%}")
    print(f"rank correlation: {_rank_correlation(results):.3f}")


def _rank_correlation(results: list[Result]) -> float:
    """Spearman's, of predicted and measured times."""
    import numpy as np

    columns = [[r.predicted_ms for r in results], [r.measured_ms for r in results]]
    ranks = [np.argsort(np.argsort(column)) for column in columns]
    return float(np.asarray(np.corrcoef(ranks))[0, 1])


if __name__ == "__main__":
    main()
