# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains two tables on random ids, and compares what a subscriber serves of them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde

IDS = 3000


def tables(mesh=None, **fields):
    shared = {"optimizer": jde.optim.sgd(1.0), "log_removed": 1 << 13} | fields
    return jde.Tables(
        [
            jde.TableConfig("a", 8, 1024, **shared),
            jde.TableConfig("b", 16, 512, **shared | {"score_strategy": "lfu"}),
        ],
        mesh=mesh,
    )


@functools.cache
def step_of(coll):
    @jax.jit
    def step(state, ids, value):
        rows, residual, state = coll.lookup(state, ids)
        grads = {name: jnp.full_like(each, value) for name, each in rows.items()}
        return coll.apply_gradients(state, residual, grads)

    return step


class Training:
    """A program that trains on random ids."""

    def __init__(self, coll, seed=0, batch=200):
        self.coll, self.state = coll, coll.init(seed)
        self.draw, self.batch, self.steps = np.random.default_rng(seed), batch, 0

    def step(self):
        ids = {n: jde.ids(self.draw.integers(0, IDS, self.batch)) for n in "ab"}
        self.steps += 1
        self.state = step_of(self.coll)(self.state, ids, float(self.steps))

    @property
    def dense(self):
        return {"w": jnp.full(3, self.steps), "deep": [jnp.float32(self.steps)]}

    def publish(self, publisher):
        publisher.step(self.state, self.dense, step=self.steps)


def same_rows(coll, state, served, rtol=0.0):
    """Compares all ids, stored or not, and the keys."""
    for name in "ab":
        ids = {name: jde.ids(np.arange(IDS))}
        want = np.asarray(coll.find(state, ids)[0][name])
        np.testing.assert_allclose(served.find(ids)[name], want, rtol=rtol, atol=rtol)
