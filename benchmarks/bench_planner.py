# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Predicted steps of random sharding plans beside measured ones.

    python benchmarks/bench_planner.py                    # all devices, 20 plans
    python benchmarks/bench_planner.py --cpu 8 --json planner.json

Each plan gives every table a random sharding. The devices are measured first. Then the
steps of all plans run in turn, several times. A round takes three batches in turn:
chance decides whether the ids of one fit into one exchange. As in training nothing
waits within a round; the fastest one counts. One plan has arrays at a time. Half of the
tables pool, and every other one has popular ids (Zipf's law). On one device, where no
sharding matters much, a plan has some of the tables. It prints both times of each plan,
their rank correlation, and the median error; the last line is JSON.

Plans of some tables nearly all take the same time, and then noise decides their order.
So tables are drawn again until predictions differ: ``--apart`` is the part of all pairs
of plans of which one takes a tenth more than the other. What is measured has no part in
this.

Every other round is a measurement of its own. The rank correlation of the two says how
well the measurement itself knows the order of the plans: no model can be expected to
know it better.

``--clock cpu`` takes the CPU time of the process, divided by its cores, for all times.
On a machine that others use too it varies less than the time on the wall.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import itertools
import json
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BATCHES = 3


@dataclasses.dataclass(frozen=True)
class Result:
    """One plan.

    Attributes:
      shardings: by sharding, how many tables have it.
      predicted_ms: of a step.
      measured_ms: of a step.
      halves_ms: the same, of the even rounds and of the odd ones.
      tables: the sharding of each.
    """

    shardings: dict[str, int]
    predicted_ms: float
    measured_ms: float
    halves_ms: tuple[float, float]
    tables: dict[str, str]


def main() -> None:
    """Measures, prints a table and writes JSON."""
    options = _options()
    if options.cpu:
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import numpy as np
    from jax.sharding import Mesh

    import jax_dynemb as jde
    from jax_dynemb._src.planner import probes as _probes

    if options.clock == "cpu":
        cores = len(os.sched_getaffinity(0))
        _probes.clock = lambda: time.process_time() / cores
    on_cpu = options.cpu or jax.default_backend() == "cpu"
    options.batch = options.batch or (256 if on_cpu else 8192)
    options.most_rows = options.most_rows or (3e4 if on_cpu else 1e6)
    if options.cpu:
        jax.config.update("jax_num_cpu_devices", options.cpu)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    begin = time.perf_counter()
    topology = jde.Topology.measure(mesh)
    print(topology, f"in {time.perf_counter() - begin:.0f} s", flush=True)
    rng = np.random.default_rng(options.seed)
    chosen, plans = _plans_apart(rng, topology, options)
    steps = [
        _Step(mesh, some, plan, options)
        for some, plan in zip(chosen, plans, strict=True)
    ]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_Step.compile, steps))
    for _ in range(options.rounds):
        for step in steps:
            step.run()
    results = [_result(step) for step in steps]
    found = {
        "device": jax.devices()[0].device_kind,
        "devices": mesh.size,
        "clock": options.clock,
        **_compared(results),
        "seconds": time.perf_counter() - begin,
    }
    _show(results, found)
    if options.json:
        more = {
            "topology": dataclasses.asdict(topology),
            "options": vars(options),
            "results": [dataclasses.asdict(result) for result in results],
        }
        Path(options.json).write_text(json.dumps(found | more))
    print(json.dumps(found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plans", type=int, default=20)
    parser.add_argument("--tables", type=int, default=6)
    parser.add_argument("--batch", type=int, default=0, help="examples of a device")
    parser.add_argument("--most-rows", type=float, default=0, help="of a table")
    parser.add_argument("--steps", type=int, default=4, help="of a round")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--apart", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--cpu", type=int, default=0, help="forced CPU devices")
    parser.add_argument("--json", default="", help="write the figures here")
    return parser.parse_args()


def _tables(rng: Any, options: Any, devices: int) -> list[Any]:
    """Tables of different sizes; half of them pool bags of 2 to 16 ids."""
    import jax_dynemb as jde

    def shape() -> dict[str, Any]:
        return {
            "dim": 4 * devices * int(rng.choice([1, 2, 4])),
            "capacity": int(10 ** rng.uniform(3.2, math.log10(options.most_rows))),
        }

    shapes = [shape() for _ in range(options.tables)]
    tables = []
    for n in range(options.tables):
        pools = n % 2 == 1
        factor = float(rng.integers(2, 17)) if pools else 1.0
        tables.append(
            jde.TableConfig(
                f"t{n}",
                # Two of a kind may lie on different devices as table-wise ones.
                **shapes[n % 2 if n < 4 else n],
                pooling="sum" if pools else None,
                pooling_factors=(factor,),
                optimizer=jde.optim.adagrad(0.05),
                initializer=jde.initializers.uniform(-0.05, 0.05),
            )
        )
    return tables


def _some(rng: Any, tables: list[Any], devices: int) -> list[Any]:
    """Returns all tables; on one device, where no sharding matters much, a few."""
    if devices > 1:
        return tables
    kept = rng.random(len(tables)) < rng.uniform(0.2, 1.0)
    return [t for t, keep in zip(tables, kept, strict=True) if keep] or tables[:1]


def _keys_of(config: Any) -> tuple[int, float]:
    """Returns how many ids a table has, and the exponent of their frequencies."""
    return config.capacity // 2, 1.0 if int(config.name[1:]) % 4 > 1 else 0.0


def _random_plan(rng: Any, topology: Any, tables: list[Any], options: Any) -> Any:
    import jax_dynemb as jde

    names = ["row_wise", "table_wise", "column_wise", "replicated"]
    # Some plans have one sharding for most tables, others a mixture.
    odds = rng.dirichlet([0.4] * len(names))
    constraints = {}
    for t in tables:
        keys, skew = _keys_of(t)
        chosen = [str(rng.choice(names, p=odds))]
        constraints[t.name] = jde.ParameterConstraints(
            chosen, num_keys=keys, key_skew=skew
        )
    return jde.EmbeddingShardingPlanner(topology, options.batch, constraints).plan(
        tables
    )


def _plans_apart(rng: Any, topology: Any, options: Any) -> tuple[list[Any], list[Any]]:
    """Draws tables and plans until predictions differ; else the best of 30 draws."""
    found: list[tuple[float, list[Any], list[Any]]] = []
    while len(found) < 30 and not (found and found[-1][0] >= options.apart):
        tables = _tables(rng, options, topology.world_size)
        chosen = [_some(rng, tables, topology.world_size) for _ in range(options.plans)]
        plans = _different_plans(rng, topology, chosen, options)
        pairs = list(itertools.combinations([plan.ms for plan in plans], 2))
        apart = sum(max(pair) > 1.1 * min(pair) for pair in pairs)
        found.append((apart / max(1, len(pairs)), chosen, plans))
    apart, chosen, plans = max(found, key=lambda each: each[0])
    print(f"{len(found)} draws of tables; {apart:.0%} of the pairs of plans differ")
    return chosen, plans


def _different_plans(
    rng: Any, topology: Any, chosen: list[Any], options: Any
) -> list[Any]:
    """Draws plans until all differ in where tables lie, or the draws run out.

    A table-wise table on all devices lies as a row-wise one does.
    """
    found, seen = [], set()
    for some in chosen:
        for _ in range(50):
            plan = _random_plan(rng, topology, some, options)
            where = tuple(
                (t.table, t.shards, t.sharding.replace("table_", "row_"))
                for t in plan.tables
            )
            if where not in seen:
                break
        seen.add(where)
        found.append(plan)
    return found


class _Step:
    """Runs the step of one plan: a lookup and an update of all tables."""

    def __init__(self, mesh: Any, tables: list[Any], plan: Any, options: Any):
        import jax
        import numpy as np
        from jax.sharding import NamedSharding, PartitionSpec

        import jax_dynemb as jde

        self.plan = plan
        self._rounds: list[float] = []  # seconds of a step
        self._coll = coll = jde.Tables(tables, mesh=mesh, plan=plan)
        split = NamedSharding(mesh, PartitionSpec("data"))
        rng = np.random.default_rng(0)
        examples = options.batch * mesh.size
        self._batches: list[dict[str, Any]] = [{} for _ in range(BATCHES)]
        for t in tables:
            size = int(t.pooling_factors[0])
            shape = (examples, size) if t.pooling else (examples,)
            keys, skew = _keys_of(t)
            odds = np.arange(1.0, keys + 1) ** -skew
            for batch in self._batches:
                drawn = rng.choice(keys, shape, p=odds / odds.sum())
                batch[t.name] = jax.device_put(jde.ids(drawn), split)

        def several(state: Any, ids: Any) -> Any:
            def one(_: Any, state: Any) -> Any:
                rows, residual, state = coll.lookup(state, ids)
                return coll.apply_gradients(state, residual, rows)

            return jax.lax.fori_loop(0, options.steps, one, state)

        self._count = options.steps
        self._init: Any = jax.jit(lambda: coll.init(0)).lower()
        shapes = jax.eval_shape(lambda: coll.init(0))
        self._several: Any = jax.jit(several, donate_argnums=0).lower(
            shapes, self._batches[0]
        )

    def compile(self) -> None:
        """Compiles the step; several threads may do so at once."""
        self._init, self._several = self._init.compile(), self._several.compile()

    def run(self) -> None:
        """Runs a round of steps, after all ids have rows."""
        from jax_dynemb._src.planner.probes import timed_rounds

        taken = timed_rounds(self._several, self._init(), self._batches, 1)
        self._rounds += [seconds / self._count for seconds in taken]

    def ms(self, first: int = 0, stride: int = 1) -> float:
        """Returns the time of a step in the fastest round.

        Args:
          first: round that counts.
          stride: from it to the next one that does.
        """
        return 1e3 * min(self._rounds[first::stride])


def _result(step: _Step) -> Result:
    shardings: dict[str, int] = {}
    for each in step.plan.tables:
        shardings[each.sharding] = shardings.get(each.sharding, 0) + 1
    chosen = {each.table: each.sharding for each in step.plan.tables}
    shardings = dict(sorted(shardings.items()))
    halves = step.ms(0, 2), step.ms(1, 2)
    return Result(shardings, step.plan.ms, step.ms(), halves, chosen)


def _compared(results: list[Result]) -> dict[str, float]:
    """Compares both times of all plans, and both measurements with each other."""
    import numpy as np

    measured = [r.measured_ms for r in results]
    even, odd = zip(*[r.halves_ms for r in results], strict=True)
    noise = np.abs(np.log(np.divide(even, odd)))
    return {
        "rank_correlation": _rank_correlation(
            [r.predicted_ms for r in results], measured
        ),
        "measured_again": _rank_correlation(even, odd),
        "noise": float(np.median(noise)),
        "spread": max(measured) / min(measured),
        "median_error": float(np.median(_errors(results))),
        "largest_error": max(_errors(results)),
    }


def _show(results: list[Result], found: dict[str, Any]) -> None:
    for each in sorted(results, key=lambda r: r.measured_ms):
        shardings = ", ".join(f"{n} {kind}" for kind, n in each.shardings.items())
        print(f"{each.predicted_ms:10.3f} {each.measured_ms:10.3f} ms  {shardings}")
    ratios = [r.predicted_ms / r.measured_ms for r in results]
    print(f"predicted / measured: {min(ratios):.2f} to {max(ratios):.2f}")
    print(
        f"error: median {found['median_error']:.0%}, most {found['largest_error']:.0%}"
    )
    print(f"rank correlation: {found['rank_correlation']:.3f}")
    print(
        f"measured again: {found['measured_again']:.3f}, noise {found['noise']:.1%}, "
        f"slowest / fastest {found['spread']:.2f}"
    )


def _errors(results: list[Result]) -> list[float]:
    return [abs(r.predicted_ms / r.measured_ms - 1) for r in results]


def _rank_correlation(some: Sequence[float], others: Sequence[float]) -> float:
    """Spearman's."""
    import numpy as np

    ranks = []
    for column in np.round([some, others], 9):
        _, same, count = np.unique(column, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(count) - (count - 1) / 2)[same])  # equal ones share
    return float(np.asarray(np.corrcoef(ranks))[0, 1])


if __name__ == "__main__":
    main()
