# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a tiered table in one process or two; run by test_several_processes.

    python several_processes.py TIER PROCESSES

Says the rows of this process's devices after the table has grown. TIER is "none" or
"host".
"""

import functools
import json
import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jax_dynemb as jde
from walks import rows_of

BATCH, STEPS = 64, 4
TIERS = {"none": None, "host": jde.tiers.host(hbm_fraction=4 / 128, spill_rows=300)}


def main(tier: str) -> None:
    """Trains, grows, trains and says what there is."""
    jax.config.update("jax_num_cpu_devices", 4 // int(sys.argv[2]))
    jde.distributed.ensure_initialized()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    config = jde.TableConfig(
        "t", 4, 512, optimizer=jde.optim.adam(0.05), tier=TIERS[tier]
    )
    coll = jde.Tables([config], mesh=mesh, axis="data")
    state = coll.init(3)
    split = NamedSharding(mesh, PartitionSpec("data"))
    size = BATCH // jax.process_count()
    mine = slice(size * jax.process_index(), size * (jax.process_index() + 1))

    def stepper(coll):
        @functools.partial(jax.jit, donate_argnums=0)
        def step(state, ids):
            rows, residual, state = coll.lookup(state, {"t": ids})
            return coll.apply_gradients(state, residual, rows)

        return step

    for number in range(STEPS):
        if number == STEPS // 2:
            coll, state = coll.grow(state, {"t": 1024})
        keys = np.random.default_rng(number).integers(0, 600, BATCH)[mine]
        state = stepper(coll)(state, jde.ids(keys, sharding=split))
    rows = {str(key): row.hex() for key, row in rows_of(coll, state, "t").items()}
    print("RESULT " + json.dumps({"rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1])
