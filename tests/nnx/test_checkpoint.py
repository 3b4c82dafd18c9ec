# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""orbax saves and restores the state of a model with tables like any other."""

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx

import jax_dynemb as jde


def trained(kit, **options):
    model = kit.model(**options)
    optimizer = jde.nnx.Optimizer(model, optax.adam(1e-2))
    for step in range(3):
        kit.step(model, optimizer, kit.batch(step))
    return model, optimizer


def test_restored_model_goes_on_as_if_nothing_happened(kit, tmp_path):
    optimizer = optax.adam(0.1)  # with a state of its own beside the rows'
    model, dense = trained(kit, optimizer=optimizer)
    state = nnx.state((model, dense))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "step", state)
        checkpointer.wait_until_finished()
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
        restored = checkpointer.restore(tmp_path / "step", abstract)
    again = kit.model(seed=9, optimizer=optimizer)
    dense_again = jde.nnx.Optimizer(again, optax.adam(1e-2))
    nnx.update((again, dense_again), restored)
    losses = [
        [float(kit.step(*both, kit.batch(step))) for step in (7, 8)]
        for both in ((model, dense), (again, dense_again))
    ]
    assert losses[0] == losses[1]
    assert again.sparse.stats() == model.sparse.stats()


def test_plain_dictionaries_round_trip(kit, tmp_path):
    model, _ = trained(kit)
    pure = nnx.to_pure_dict(nnx.state(model, jde.nnx.Table))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "tables", pure)
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(tmp_path / "tables", pure)
    for a, b in zip(*map(jax.tree.leaves, (pure, restored)), strict=True):
        np.testing.assert_array_equal(a, b)
