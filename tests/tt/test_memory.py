# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Bytes of a training step: cores, optimizer, and what a step needs besides."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh

import jax_dynemb as jde

BAGS, BAG, DIM, RANK = 4096, 16, 64, 32
P_SHAPES, Q_SHAPES = (20, 22, 25), (4, 4, 4)
FLOAT = 4


def test_a_step_holds_factors_and_rows_alone(platform):
    """No array has a matrix for each row: those of suffixes would take 34 MB here."""
    config = jde.TTConfig(
        "item",
        DIM,
        11_000,
        (RANK, RANK),
        rows_shape=P_SHAPES,
        dim_shape=Q_SHAPES,
        optimizer=jde.optim.adagrad(0.1),
        pooling="sum",
        compute_dtype="tensorfloat32",
    )

    def step(state, ids, d_rows):
        _, residual, state = jde.tt.lookup(config, state, ids)
        return jde.tt.apply_gradients(config, state, residual, d_rows)

    state = jde.tt.init(config)
    ids = jde.ids(np.random.default_rng(0).integers(0, 11_000, (BAGS, BAG)))
    d_rows = jnp.ones((BAGS, DIM))
    program = jax.jit(step, donate_argnums=0).lower(state, ids, d_rows).compile()
    cores = FLOAT * (20 * 4 * 32 + 22 * 32 * 4 * 32 + 25 * 32 * 4)
    assert FLOAT * config.num_parameters == cores
    for arrays in (state.cores, state.optimizer):
        found = sum(x.nbytes for x in jax.tree.leaves(arrays) if x.ndim == 4)
        assert found == cores
    rows = FLOAT * BAGS * BAG * DIM  # and as many of gradients
    prefixes = FLOAT * 20 * 22 * 16 * RANK  # likewise
    numbers = FLOAT * BAGS * BAG  # of ids, places, ranks and so on
    sums = FLOAT * 132 * 25 * 4 * RANK  # of suffixes, by the blocks of a GPU
    expected = 2 * (rows + prefixes) + 8 * numbers + sums
    memory: Any = program.memory_analysis()
    assert memory.temp_size_in_bytes <= expected


@pytest.mark.parametrize(
    ("optimizer", "copies", "scalars"),
    [
        (None, 1, 0),
        (jde.optim.sgd(0.1), 1, 0),
        (jde.optim.adagrad(0.1), 2, 0),
        (jde.optim.adam(0.1), 3, 1),
        (optax.sgd(0.1, momentum=0.9), 2, 0),
    ],
)
@pytest.mark.parametrize("devices", [None, 4])
def test_the_bytes_of_cores_and_their_optimizer(devices, optimizer, copies, scalars):
    """Before an array is made; each device has all of them."""
    train = jde.TTConfig("item", 64, 11_000, (32, 32), optimizer=optimizer)
    tables = [train, jde.TableConfig("user", 8, 1024)]
    mesh = None
    if devices is not None:
        mesh = Mesh(np.array(jax.devices("cpu")[:devices]), ("data",))
    coll = jde.Tables(tables, mesh=mesh)
    assert list(coll.memory()) == ["item", "user"]
    trained = FLOAT * (copies * train.num_parameters + scalars)
    state: Any = coll.init(0)["item"]
    made = jax.tree.leaves((state.cores, state.optimizer))
    assert sum(x.nbytes for x in made) == trained
    assert coll.stats(coll.init(0))["item/bytes"] == trained
    words = state.seed.nbytes + state.counters.nbytes
    assert coll.memory()["item"] == {
        "hbm": (devices or 1) * (trained + words),
        "pinned_host": 0,
    }
