# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""First rows, bit for bit."""

import statistics

import numpy as np
import pytest

import jax_dynemb as jde
from support import Twins

INIT = jde.initializers
EXACT = {
    "default": None,
    "uniform": INIT.uniform(-0.3, 0.7),
    "narrow": INIT.uniform(0.1, 0.1000001),
    "zeros": INIT.zeros(),
    "constant": INIT.constant(-1.25),
    "debug": INIT.debug(),
}
NORMAL = {
    "standard": INIT.normal(),
    "normal": INIT.normal(stddev=0.02, mean=1.0),
    "truncated": INIT.truncated_normal(stddev=0.5, mean=0.1),
    "tail": INIT.truncated_normal(stddev=1.0, mean=0.0, lower=1.5, upper=3.0),
}
KEYS = np.concatenate(
    [
        np.arange(200),
        [2**63 - 1, -(2**63), -5, 2**32, 2**32 - 1],
        np.random.default_rng(0).integers(-(2**62), 2**62, 300),
    ]
)


def twins_of(initializer, **options) -> Twins:
    options = {"dim": 37, "capacity": 4096, "initializer": initializer} | options
    return Twins(jde.TableConfig(name="t", **options), seed=2**40 + 17)


@pytest.mark.parametrize("name", EXACT)
def test_exact_bits(platform, name):
    twins = twins_of(EXACT[name])
    rows, _ = twins.lookup({"t": KEYS})
    expected, _ = twins.oracle.lookup({"t": KEYS})
    np.testing.assert_array_equal(
        rows["t"].view(np.uint32), expected["t"].view(np.uint32)
    )


@pytest.mark.parametrize("name", NORMAL)
def test_normal_rows_to_seven_digits(platform, name):
    twins = twins_of(NORMAL[name])
    rows, _ = twins.lookup({"t": KEYS})
    expected, _ = twins.oracle.lookup({"t": KEYS})
    np.testing.assert_allclose(rows["t"], expected["t"], rtol=3e-6, atol=3e-7)


def test_default_bounds_follow_the_capacity(platform):
    twins = twins_of(None, capacity=10_000)
    rows, _ = twins.lookup({"t": KEYS})
    assert 0.0099 < np.abs(rows["t"]).max() <= 0.01


def test_normal_rows_are_normal(platform):
    twins = twins_of(INIT.normal(stddev=3.0, mean=-1.0), dim=128)
    rows, _ = twins.lookup({"t": KEYS})
    x = np.sort((rows["t"].reshape(-1) + 1) / 3)
    normal = statistics.NormalDist()
    for p in (0.001, 0.1, 0.5, 0.9, 0.999):
        assert np.mean(x < normal.inv_cdf(p)) == pytest.approx(p, abs=0.005)


@pytest.mark.parametrize("name", ["uniform", "debug"])
def test_evaluation_rows_use_the_same_generator(platform, name):
    twins = twins_of(None, eval_initializer=EXACT[name])
    rows, _ = twins.find({"t": KEYS})
    trained = twins_of(EXACT[name])
    expected, _ = trained.lookup({"t": KEYS})
    np.testing.assert_array_equal(rows["t"], expected["t"])
