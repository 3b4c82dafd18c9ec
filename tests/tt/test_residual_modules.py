# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A tensor train with a residual in modules of Flax and of TorchRec's names."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde
from meshes import mesh_of
from oracle import tt_table

T = jde.torchrec
ROWS, DIM, RATE = 60, 8, 0.25
TRAIN = jde.TTConfig(
    "item",
    DIM,
    ROWS,
    (3, 2),
    optimizer=jde.optim.sgd(RATE),
    pooling="sum",
    compute_dtype="float32",
)
HOT = dataclasses.replace(TRAIN, residual=1024)
IDS = np.array([[3, 9], [9, 9], [0, -1], [59, 3], [7, 8], [-1, -1], [3, 0], [11, 2]])


@jde.nnx.jit
def step(model: Any, batch: Any) -> Any:
    def loss_fn(model):
        return sum(jnp.sum(r) for r in jax.tree.leaves(rows_of(model, batch)))

    _, grads = jde.nnx.value_and_grad(loss_fn)(model)
    jde.nnx.update_tables(model, grads)


def rows_of(model: Any, batch: Any) -> Any:
    rows = model(batch)
    return rows.values() if isinstance(rows, T.KeyedTensor) else rows


def module_of(kind: str, tables: Any, devices: int) -> Any:
    mesh = None if devices == 1 else mesh_of(devices)
    owner = T if kind == "torchrec" else jde.nnx
    return owner.EmbeddingBagCollection(tables, rngs=nnx.Rngs(0), mesh=mesh)


def batch_of(kind: str) -> Any:
    if kind == "nnx":
        return {"item": jde.ids(IDS)}
    lengths = (IDS >= 0).sum(1)
    return T.KeyedJaggedTensor.from_lengths_sync(["item"], IDS[IDS >= 0], lengths)


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("kind", ["nnx", "torchrec"])
def test_a_step_moves_cores_and_rows(kind, devices):
    """The first rows are those of the cores; a gradient then goes to both."""
    both, alone = (module_of(kind, [one], devices) for one in (HOT, TRAIN))
    batch = batch_of(kind)
    before = [jax.tree.leaves(rows_of(m, batch))[0] for m in (both, alone)]
    np.testing.assert_array_equal(*before)
    step(both, batch)
    step(alone, batch)
    assert both.stats()["item_residual/rows"] == len(set(IDS[IDS >= 0].tolist()))
    cores = [np.asarray(core) for core in both.get_state()["item"].cores]
    for mine, theirs in zip(cores, alone.get_state()["item"].cores, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    # Every gradient is one: a row has moved by the number of its uses.
    uses = np.bincount(IDS[IDS >= 0], minlength=ROWS)
    table = tt_table(cores)[:ROWS] - RATE * uses[:, None]
    wanted = np.where((IDS >= 0)[..., None], table[np.maximum(IDS, 0)], 0).sum(1)
    after = jax.tree.leaves(rows_of(both, batch))[0]
    np.testing.assert_allclose(after, wanted, atol=1e-5)
