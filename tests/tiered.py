# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A table with a tier beside the same table without one."""

import dataclasses
import functools

import jax
import numpy as np

import jax_dynemb as jde
from support import assert_same_rows, export

ADAM = jde.optim.adam(0.01)
TIER = jde.tiers.host(hbm_fraction=4 / 128, spill_rows=48)


class Both:
    """An untiered collection and its tiered twin, fed with the same calls."""

    def __init__(self, *configs: jde.TableConfig, tier=TIER, **placement):
        tiered = [dataclasses.replace(config, tier=tier) for config in configs]
        self.colls = [jde.Tables(c, **placement) for c in (configs, tiered)]
        self.states = [coll.init(3) for coll in self.colls]
        self.steps = [self.compile(coll) for coll in self.colls]

    @staticmethod
    def compile(coll: jde.Tables):
        @functools.partial(jax.jit, donate_argnums=0)
        def step(state, ids, d_rows):
            rows, residual, state = coll.lookup(state, ids)
            state = coll.apply_gradients(state, residual, d_rows)
            found, _, state = coll.find(state, ids)
            return rows, found, state

        return step

    def train(self, ids, d_rows):
        """One step of both, whose rows are equal."""
        given = {name: jde.ids(np.asarray(x, np.int64)) for name, x in ids.items()}
        results = []
        for i, step in enumerate(self.steps):
            *rows, self.states[i] = step(self.states[i], given, d_rows)
            results.append(rows)
        jax.tree.map(np.testing.assert_array_equal, *results)

    def check(self):
        """Rows, optimizer states, scores and counters are equal."""
        pairs = list(zip(self.colls, self.states, strict=True))
        plain, tiered = (coll.stats(state) for coll, state in pairs)
        assert {name: tiered[name] for name in plain} == plain
        for name in self.colls[0].tables:
            got, want = (export(coll, state, name) for coll, state in pairs)
            assert_same_rows(got, want)


def batch(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 900, size)


def above_store(ring_rows: int, frames: int = 4, **options) -> jde.TableConfig:
    """A table with a ring of so many departed rows."""
    fields = {"dim": 6, "capacity": 256, "optimizer": ADAM} | options
    tier = jde.tiers.host(hbm_fraction=frames / 128, spill_rows=40)
    tier = dataclasses.replace(tier, ring_rows=ring_rows)
    return jde.TableConfig("t", tier=tier, **fields)
