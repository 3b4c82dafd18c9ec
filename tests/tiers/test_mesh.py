# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tiered tables on a mesh are untiered tables on that mesh, bit for bit."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from support import assert_same_rows, export, gradients
from tiered import ADAM, TIER, Both, batch

# Shardy crashes there on the loop of rounds within shard_map (concepts/tiers.md).
pytestmark = pytest.mark.skipif(
    jax.__version_info__[:2] == (0, 11), reason="the compiler of jaxlib 0.11 crashes"
)


@pytest.mark.slow
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


def test_checkpoints_of_tables_that_share_arrays(tmp_path):
    """Two of them are blocks of the same arrays."""
    fields = {"optimizer": ADAM, "sharding": "table_wise"}
    tables = [jde.TableConfig(name, 4, 1024, **fields) for name in "abc"]
    both = Both(*tables, mesh=mesh_of(4))
    assert len({both.colls[1].state_name(name) for name in "abc"}) == 2

    def train(seed: int) -> None:
        ids = {n: batch(60, seed + i) for i, n in enumerate("abc")}
        both.train(ids, {n: jnp.asarray(gradients((60, 4), seed)) for n in "abc"})

    for seed in range(3):
        train(seed)
    plain, tiered = both.colls
    for number, coll in enumerate([tiered, plain]):
        folder = tmp_path / str(number)
        jde.checkpoint.save(folder, 1, both.states[1 - number], tables=coll, wait=True)
    for number, coll in enumerate(both.colls):  # each from the other's checkpoint
        both.states[number] = jde.checkpoint.restore(
            tmp_path / str(number), coll.init(9), tables=coll
        ).tree
    train(3)
    both.check()
    one = jde.Tables(
        [dataclasses.replace(c, sharding="row_wise") for c in tiered.tables.values()]
    )
    there = jde.checkpoint.restore(tmp_path / "0", one.init(5), tables=one).tree
    back = jde.checkpoint.restore(tmp_path / "1", plain.init(5), tables=plain).tree
    for name in "abc":
        assert_same_rows(export(one, there, name), export(plain, back, name))


def test_init_inside_of_jit_makes_whole_homes():
    """A traced init has shapes and shardings of one outside of jit."""
    fields = {"optimizer": ADAM, "tier": TIER}
    coll = jde.Tables([jde.TableConfig("t", 4, 1024, **fields)], mesh=mesh_of(4))
    outside, inside = coll.init(3), jax.jit(coll.init)(3)
    traced = jax.eval_shape(coll.init, 3)
    homes = outside["t"].tier.homes
    assert inside["t"].tier.homes.sharding == homes.sharding
    for other in (inside, traced):
        assert other["t"].tier.homes.shape == homes.shape
    ids = {"t": batch(200, 1)}
    for state in (outside, inside):
        rows, residual, state = coll.lookup(state, ids)
        coll.apply_gradients(state, residual, rows)
