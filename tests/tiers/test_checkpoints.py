# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of a tiered table restores with any tier, or with none."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.engines.shard import tier as _tier
from support import assert_same_rows, export, gradients

TABLE = jde.TableConfig("t", 5, 512, optimizer=jde.optim.adam(0.01))
TIERS = {
    "none": None,
    "four": jde.tiers.host(hbm_fraction=4 / 128, spill_rows=48),
    "half": jde.tiers.host(hbm_fraction=0.5),
}


def collection(tier: str, **placement) -> jde.Tables:
    return jde.Tables([dataclasses.replace(TABLE, tier=TIERS[tier])], **placement)


def train(coll, state, seeds):
    step = jax.jit(
        lambda state, ids, d_rows: coll.apply_gradients(
            *coll.lookup(state, {"t": ids})[:0:-1], {"t": d_rows}
        ),
        donate_argnums=0,
    )
    for seed in seeds:
        ids = np.random.default_rng(seed).integers(0, 900, 120)
        state = step(state, jde.ids(ids), jnp.asarray(gradients((120, 5), seed)))
    return state


@pytest.mark.parametrize(
    "before, after", [("four", "none"), ("none", "four"), ("four", "half")]
)
def test_any_tier_to_any_other(platform, tmp_path, before, after):
    coll, other = collection(before), collection(after)
    state = train(coll, coll.init(0), range(4))
    state, _ = coll.lookup(state, {"t": jde.ids([7_000_000])})[2], None  # never updated
    jde.checkpoint.save(tmp_path, 1, state, tables=coll, wait=True)
    restored = jde.checkpoint.restore(tmp_path, other.init(9), tables=other).tree
    assert_same_rows(export(other, restored, "t"), export(coll, state, "t"))
    seeds = range(4, 7)
    assert_same_rows(
        export(other, train(other, restored, seeds), "t"),
        export(coll, train(coll, state, seeds), "t"),
    )


@pytest.mark.parametrize("tier", ["none", "four"])
def test_a_table_that_the_checkpoint_lacks_stays_as_it_is(platform, tmp_path, tier):
    """As the error advises; the other one is restored."""
    saver = collection("four")
    saved = train(saver, saver.init(0), range(3))
    jde.checkpoint.save(tmp_path, 1, saved, tables=saver, wait=True)
    new = dataclasses.replace(TABLE, name="new", feature_names=(), tier=TIERS[tier])
    coll = jde.Tables([dataclasses.replace(TABLE, tier=TIERS["half"]), new])
    state = coll.lookup(coll.init(1), {"new": jde.ids(np.arange(30))})[2]
    rows = export(coll, state, "new")
    with pytest.raises(ValueError, match="Pass strict=False to restore the others"):
        jde.checkpoint.restore(tmp_path, state, tables=coll)
    restored = jde.checkpoint.restore(tmp_path, state, tables=coll, strict=False).tree
    assert_same_rows(export(coll, restored, "new"), rows)
    assert_same_rows(export(coll, restored, "t"), export(saver, saved, "t"))
    trained = train(coll, restored, range(3, 5))
    expected = train(saver, saved, range(3, 5))
    assert_same_rows(export(coll, trained, "t"), export(saver, expected, "t"))


@pytest.mark.parametrize("chunk_bytes", [1 << 28, 1 << 12])
def test_a_save_reads_the_slots_that_there_are(tmp_path, monkeypatch, chunk_bytes):
    """In chunks of one size, which are not larger than the table."""
    read, seen = _tier._read, []

    def noted(table, state, slots):
        seen.append(len(slots))
        return read(table, state, slots)

    monkeypatch.setattr(_tier, "_read", noted)
    monkeypatch.setattr(_tier, "_CHUNK_BYTES", chunk_bytes)
    coll = collection("four")
    state = train(coll, coll.init(0), range(2))
    jde.checkpoint.save(tmp_path, 1, state, tables=coll, wait=True)
    assert (
        len(set(seen)) == 1 and TABLE.capacity <= sum(seen) < TABLE.capacity + seen[0]
    )
    back = jde.checkpoint.restore(tmp_path, coll.init(9), tables=coll).tree
    assert_same_rows(export(coll, back, "t"), export(coll, state, "t"))


def test_another_capacity_inserts_again(platform, tmp_path):
    coll = collection("four")
    state = train(coll, coll.init(0), range(2))
    jde.checkpoint.save(tmp_path, 1, state, tables=coll, wait=True)
    larger = jde.Tables([dataclasses.replace(TABLE, capacity=2048, tier=TIERS["four"])])
    restored = jde.checkpoint.restore(tmp_path, larger.init(9), tables=larger).tree
    assert_same_rows(export(larger, restored, "t"), export(coll, state, "t"))
