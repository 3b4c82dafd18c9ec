# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables, devices and constraints that tests give a planner."""

import numpy as np

import jax_dynemb as jde

UNIFORM = jde.initializers.uniform(-0.1, 0.1)
SHARDINGS = ("row_wise", "table_wise", "column_wise", "replicated")
Constraints = jde.ParameterConstraints


def table(name, **options):
    common = {"dim": 32, "capacity": 1024, "initializer": UNIFORM}
    return jde.TableConfig(name, **{**common, **options})


def topology(world_size=8, **options):
    common = {
        "hbm_cap": 10**10,
        "hbm_mem_bw": 2e12,
        "intra_host_bw": 2e11,
        "collective_latency": 2e-5,
        "step_overhead": 5e-5,
    }
    return jde.Topology(world_size, **{**common, **options})


def only(sharding, *names):
    return {name: Constraints(sharding_types=[sharding]) for name in names}


def planner(world_size=8, batch_size=64, constraints=None, **options):
    devices = options.pop("devices", None) or topology(world_size)
    return jde.EmbeddingShardingPlanner(devices, batch_size, constraints, **options)


def many_tables(count, seed=0):
    rng = np.random.default_rng(seed)
    return [
        table(
            f"t{n}",
            dim=int(rng.choice([16, 32, 64, 128, 256])),
            capacity=int(10 ** rng.uniform(2, 7)),
            pooling="sum" if n % 2 else None,
            pooling_factors=(float(rng.integers(1, 20)),),
            optimizer=jde.optim.adam(0.1),
        )
        for n in range(count)
    ]
