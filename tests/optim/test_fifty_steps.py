# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Every optimizer over many steps, all of them in one collection, beside the oracle."""

import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from optimizer_kinds import KINDS
from support import Rows, Twins, export, gradients

TUNED = {
    "sgd": jde.optim.sgd(0.1),
    "adagrad": jde.optim.adagrad(0.1),
    "rowwise_adagrad": jde.optim.rowwise_adagrad(0.1),
    "adam": jde.optim.adam(0.01, weight_decay=0.1),
}
ALL = TUNED | KINDS
STEPS = 50


def assert_near(got, want, name):
    """Within what 50 float32 steps lose; a sign of what is nearly 0 may be another."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    far = abs(got - want) > 2e-4 + 2e-3 * abs(want)
    assert far.mean() < 1e-3, (name, far.mean(), abs(got - want).max())


@pytest.mark.slow
@pytest.mark.parametrize("dim", [1, 3, 16, 130, 1_024])
def test_fifty_steps_with_duplicates(platform, dim):
    tables = [jde.TableConfig(n, dim, 256, optimizer=o) for n, o in ALL.items()]
    twins = Twins(*tables)
    draw = np.random.default_rng(dim)
    for step in range(STEPS):
        keys = {name: draw.integers(-1, 9, 12) for name in ALL}
        given = {name: jde.ids(x) for name, x in keys.items()}
        _, residual, twins.state = twins.jit.lookup(twins.state, given, None, None)
        _, expected = twins.oracle.lookup(keys)
        d_rows = {n: gradients((12, dim), step + 100 * i) for i, n in enumerate(ALL)}
        d_rows = {name: 0.25 * jnp.asarray(d) for name, d in d_rows.items()}
        host = {name: np.asarray(d) for name, d in d_rows.items()}
        twins.apply((residual, expected), host)
    for name in ALL:
        got = Rows.of(export(twins.coll, twins.state, name))
        want = Rows.of(twins.oracle.export(name))
        np.testing.assert_array_equal(got.keys, want.keys)
        assert_near(got.values, want.values, name)
        for state, values in got.state.items():
            assert_near(values, want.state[state], f"{name}/{state}")
