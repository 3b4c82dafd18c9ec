# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that first rows have the same bits on every platform."""

import jax
import numpy as np
import pytest

import jax_dynemb as jde

INITIALIZERS = {
    "uniform": jde.initializers.uniform(-0.1, 0.3),
    "normal": jde.initializers.normal(0.7, mean=0.2),
    "truncated_normal": jde.initializers.truncated_normal(1.3, lower=-1.0, upper=2.5),
}


def first_rows(device: jax.Device, config: jde.TableConfig, ids: np.ndarray):
    with jax.default_device(device):
        coll = jde.Tables([config])
        rows, _, state = coll.lookup(coll.init(7), {"t": jde.ids(ids)})
        stored, found, _ = coll.find(state, {"t": jde.ids(ids)})
    assert np.asarray(found["t"]).all()
    np.testing.assert_array_equal(rows["t"], stored["t"])
    return np.asarray(rows["t"]).view(np.uint32)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", INITIALIZERS)
@pytest.mark.parametrize("param_dtype", ["float32", "bfloat16", "float16"])
def test_cpu_and_cuda_agree(kind, param_dtype):
    config = jde.TableConfig(
        "t",
        dim=37,
        capacity=20_000,
        initializer=INITIALIZERS[kind],
        param_dtype=param_dtype,
    )
    ids = np.random.default_rng(0).integers(0, 2**62, 5000)
    cpu, cuda = (
        first_rows(jax.devices(platform)[0], config, ids)
        for platform in ("cpu", "cuda")
    )
    np.testing.assert_array_equal(cpu, cuda)
