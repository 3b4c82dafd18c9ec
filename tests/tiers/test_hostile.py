# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Damaged places and owners: wrong rows perhaps, but no access outside of an array."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from tiered import ADAM, TIER, batch

COLL = jde.Tables([jde.TableConfig("t", 4, 512, optimizer=ADAM, tier=TIER)])


@jax.jit
def everything(state, ids):
    rows, residual, state = COLL.lookup(state, {"t": ids})
    state = COLL.prefetch(state, {"t": ids[::-1]})
    found, _, state = COLL.find(state, {"t": ids})
    state = COLL.flush(COLL.apply_gradients(state, residual, rows))
    read, state = COLL.gather(state, {"t": jnp.arange(-3, 600, dtype=jnp.int32)})
    return rows, found, read, COLL.insert(state, {"t": ids[:9]}, {"t": rows["t"][:9]})


def damaged(state, place=None, owners=None):
    """The state with other places and owners."""
    tier = state["t"].tier
    if place is not None:
        tier = dataclasses.replace(tier, location=jnp.asarray(place, jnp.int32))
    if owners is not None:
        tier = dataclasses.replace(tier, owners=jnp.asarray(owners, jnp.uint32))
    return {"t": dataclasses.replace(state["t"], tier=tier)}


FRAMES = 4
PLACES = {
    "beyond F": lambda n: np.full(n, FRAMES + 1),
    "negative": lambda n: np.full(n, -1),
    "largest": lambda n: np.full(n, 2**31 - 1),
    "all in one frame": lambda n: np.full(n, 1),
    "cyclic": lambda n: np.arange(n) % (FRAMES + 1),
    "fresh": lambda n: np.full(n, 0x3F800000),
    "any": lambda n: np.random.default_rng(0).integers(-(2**31), 2**31, n),
}
OWNERS = {
    "as they are": None,
    "beyond 128": 0xFF,
    "all bits": 0xFFFFFFFF,
    "taken": 0x40000000,
    "one slot": 0x80000007,
}


@pytest.mark.parametrize("owners", OWNERS)
@pytest.mark.parametrize("place", PLACES)
def test_damaged_arrays_are_harmless(platform, place, owners):
    state = COLL.init(0)
    for seed in range(2):
        *_, state = everything(state, jde.ids(batch(100, seed)))
    tier = state["t"].tier
    word = OWNERS[owners]
    state = damaged(
        state,
        PLACES[place](tier.location.shape[0]).astype(np.int32),
        None if word is None else np.full(tier.owners.shape, word, np.uint32),
    )
    before = COLL.stats(state)
    for seed in range(2, 4):
        rows, found, _, state = everything(state, jde.ids(batch(100, seed)))
        assert rows["t"].shape == found["t"].shape == (100, 4)
    after = COLL.stats(state)
    assert after["t/rows"] == len(list(export_keys(state)))
    assert after["t/lookups"] == before["t/lookups"] + 2


def export_keys(state):
    """All keys of the table, which damage to the tier cannot change."""
    for chunk in COLL.export(state, "t"):
        yield from chunk.keys.tolist()


MISTAKES = [
    ({"sharding": "column_wise"}, "cannot have sharding='column_wise'"),
    ({"sharding": "replicated"}, "cannot have sharding='replicated'"),
    (
        {"state_dtype": {"mu": "bfloat16"}, "optimizer": jde.optim.adam(0.1)},
        "float32 states",
    ),
    ({"tier": 0.5}, r"tier=jde.tiers.host\(hbm_fraction=0.125\)"),
]


@pytest.mark.parametrize("fields, message", MISTAKES)
def test_what_a_tier_cannot_do_raises(fields, message):
    with pytest.raises(ValueError, match=message):
        jde.TableConfig("t", 4, 512, **({"tier": TIER} | fields))


def test_sizes_out_of_range_name_the_range():
    for sizes in ({"hbm_fraction": 0.003}, {"hbm_fraction": 0.6}, {"hbm_rows": 3}):
        table = jde.TableConfig("t", 4, 512, tier=jde.tiers.host(**sizes))
        with pytest.raises(ValueError, match="hbm_fraction from 0.0078125 to 0.5"):
            jde.Tables([table])
    table = jde.TableConfig("t", 4, 512, tier=jde.tiers.host(hbm_gigabytes=1e-9))
    with pytest.raises(ValueError, match="hbm_rows of 4 or more"):
        jde.Tables([table])
    with pytest.raises(ValueError, match="one of hbm_fraction"):
        jde.tiers.host(hbm_fraction=0.1, hbm_rows=3)
    with pytest.raises(ValueError, match="must be above 0"):
        jde.tiers.host(hbm_rows=0)


def test_sizes_before_anything_is_allocated():
    sizes = COLL.memory()["t"]
    leaves = jax.tree.leaves(COLL.init(0))
    host = [x for x in leaves if x.sharding.memory_kind == "pinned_host"]
    assert sizes["pinned_host"] == sum(x.nbytes for x in host)
    device = sum(x.nbytes for x in leaves) - sizes["pinned_host"]
    counters = 64 * 8 * 40  # small, and not counted
    assert sizes["hbm"] <= device <= sizes["hbm"] + counters
