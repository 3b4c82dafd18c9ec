# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tiered tables on a mesh are untiered tables on that mesh, bit for bit."""

import jax
import jax.numpy as jnp
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from support import gradients
from tiered import ADAM, Both, batch

# Shardy crashes there on the loop of rounds within shard_map (concepts/tiers.md).
pytestmark = pytest.mark.skipif(
    jax.__version_info__[:2] == (0, 11), reason="the compiler of jaxlib 0.11 crashes"
)


@pytest.mark.parametrize("pooling", [None, "sum"])
@pytest.mark.parametrize("sharding", ["row_wise", "table_wise"])
def test_random_batches(sharding, pooling):
    fields = {"optimizer": ADAM, "pooling": pooling, "sharding": sharding}
    tables = [jde.TableConfig(name, 4, 1024, **fields) for name in ("a", "b")]
    both = Both(*tables, mesh=mesh_of(4))
    for seed in range(3):
        ids = {n: batch(240, seed + i).reshape(-1, 3) for i, n in enumerate("ab")}
        shape = (80, 4) if pooling else (80, 3, 4)
        both.train(ids, {n: jnp.asarray(gradients(shape, seed)) for n in "ab"})
    both.check()
