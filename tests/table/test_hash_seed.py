# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""TableConfig(hash_seed=...): ids that aim at a bucket, and all that stays the same."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from growth import TABLES, check_growth
from keys import key_of_hash
from oracle import bucket_of, hash_of
from support import Twins, assert_same_rows, compiled, export, gradients

SEED = 0x8D3A_51C2_9B6E_F017
CONFIG = jde.TableConfig(
    "t", dim=3, capacity=2**16, optimizer=jde.optim.adagrad(0.5), score_strategy="step"
)
VICTIM = 123_456_789
MASK = 2**64 - 1


def crafted(count: int, num_buckets: int) -> np.ndarray:
    """int64[count]: ids that share the victim's bucket in a table without a seed."""
    first = -(-(bucket_of(VICTIM, num_buckets) << 64) // num_buckets)
    keys = [key_of_hash(first + n) for n in range(count)]
    return np.array([k for k in keys if k != VICTIM], np.int64)


def after_the_attack(config: jde.TableConfig) -> tuple[bool, dict[str, int | float]]:
    """Half a table of other ids, then 4,000 crafted ones in eight batches."""
    coll = jde.Tables([config])
    run, state = compiled(coll), coll.init(0)
    honest = np.random.default_rng(0).integers(0, 2**62, config.capacity // 2)
    honest[0] = VICTIM
    _, _, state = run.lookup(state, {"t": jde.ids(honest)}, None, None)
    for ids in crafted(4000, config.num_buckets).reshape(8, 500):
        _, _, state = run.lookup(state, {"t": jde.ids(ids)}, None, None)
    _, found, state = run.find(state, {"t": jde.ids([VICTIM])}, None)
    return bool(found["t"][0]), coll.stats(state)


def test_crafted_ids_evict_a_victim_of_a_table_without_a_seed(platform):
    stays, stats = after_the_attack(CONFIG)
    assert not stays
    # Each batch has filled one bucket again; 372 of its 500 ids were refused.
    assert stats["t/fullest_bucket"] == 128 and 7 * 128 <= stats["t/evicted"] < 8 * 128
    assert stats["t/refused"] == 8 * 500 - 8 * 128
    assert stats["t/mean_bucket"] < 65


@pytest.mark.parametrize("seed", [1, SEED, 2**64 - 1])
def test_a_seed_protects_it(platform, seed):
    stays, stats = after_the_attack(dataclasses.replace(CONFIG, hash_seed=seed))
    assert stays
    # 72 rows a bucket on average; 128 would be seven deviations away.
    assert 72 - 4 < stats["t/mean_bucket"] < 72 + 1
    assert stats["t/fullest_bucket"] < 128 and stats["t/evicted"] == 0


# Of the number that the hash multiplies first; found by trying all of up to four bits.
DIFFERENCES = [
    *(0x22 << 48, 0x0A << 48, 0x1A << 48, 0x8011 << 48, 0x26 << 48, 0x16 << 48),
    *(0x05 << 48, 0x62 << 48, 0x0E << 48, 0x8005 << 48),
]


def xored(key: int, seed: int) -> int:
    """Hashes otherwise: the seed xored in, between the products too."""
    seed &= MASK
    u = (key ^ seed) & MASK
    y = (u ^ u >> 33) * 0xFF51AFD7ED558CCD & MASK
    y ^= y >> 33 ^ seed * 0x9E3779B97F4A7C15 & MASK
    return y * 0xC4CEB9FE1A85EC53 & MASK


@pytest.mark.parametrize(
    "hashed, least, most", [(xored, 10, 60), (hash_of, 0, 4)], ids=["xor", "ours"]
)
def test_pairs_with_chosen_differences(hashed, least, most):
    """Without the seed no reader of the code finds pairs that meet more often.

    Of 4,000 pairs 0.25 meet by chance in one of 2**14 buckets. With a seed that is
    xored in, differences that pass the products would do so 40 to 110 times as often.
    """
    rng, met = np.random.default_rng(0), 0
    for difference in DIFFERENCES:
        for seed in map(int, rng.integers(1, 2**63, 400)):
            key = int(rng.integers(0, 2**63))
            other = key ^ difference ^ difference >> 33  # undoes the first step
            met += hashed(key, seed) >> 50 == hashed(other, seed) >> 50
    assert least <= met <= most


def test_ids_of_one_digest_can_not_be_chosen():
    """The byte that a probe compares first is secret too."""
    keys = [key_of_hash(n << 40 | 77) for n in range(2000)]
    assert {hash_of(key) & 0xFF for key in keys} == {77}
    counts = np.bincount([hash_of(key, SEED) & 0xFF for key in keys], minlength=256)
    assert counts.max() < 30  # 8 each on average


@pytest.mark.parametrize("share_arrays", [False, True])
def test_each_table_of_a_call_has_its_own_hash(platform, share_arrays):
    configs = [
        jde.TableConfig(f"t{n}", dim=4, capacity=512, hash_seed=seed, on_full=full)
        for n, (seed, full) in enumerate(
            [(0, "evict"), (SEED, "evict"), (1, "refuse"), (SEED, "evict")]
        )
    ]
    twins = Twins(*configs, share_arrays=share_arrays)
    assert len(twins.state) == (1 if share_arrays else 4)
    for step in range(4):
        rng = np.random.default_rng(step)
        ids = {f"t{n}": rng.integers(-1, 900, 300) for n in range(4)}
        twins.train(ids, seed=step)
        twins.find(ids)
    twins.check({"rtol": 1e-4, "atol": 1e-5})
    twins.erase({"t1": np.arange(0, 900, 3), "t2": np.arange(100)})
    twins.check({"rtol": 1e-4, "atol": 1e-5})


def trained(coll: jde.Tables, steps: int = 3):
    run, state = compiled(coll), coll.init(7)
    for step in range(steps):
        ids = np.random.default_rng(step).integers(-(2**62), 2**62, 200)
        rows, residual, state = run.lookup(state, {"t": jde.ids(ids)}, None, None)
        d_rows = {"t": jnp.asarray(gradients(rows["t"].shape, step))}
        state = run.apply_gradients(state, residual, d_rows, None)
    return state


def twin_collections() -> tuple[jde.Tables, jde.Tables]:
    plain = dataclasses.replace(CONFIG, capacity=2048)
    seeded = dataclasses.replace(plain, hash_seed=SEED)
    return jde.Tables([plain]), jde.Tables([seeded])


def test_rows_do_not_depend_on_it(platform, tmp_path):
    """Initial rows, updates, scores; clear; files of one in tables of the other."""
    plain, seeded = twin_collections()
    before, state = trained(plain), trained(seeded)
    want = export(plain, before, "t")
    assert len(want) == 600
    assert_same_rows(export(seeded, state, "t"), want)
    assert not np.array_equal(before["t"].index, state["t"].index)

    jde.export.safetensors(tmp_path / "x", seeded, state, quiet=True)
    imported = jde.import_.safetensors(tmp_path / "x", plain).state
    rows = export(plain, imported, "t")
    assert rows.keys() == want.keys()
    for key, row in rows.items():
        np.testing.assert_array_equal(row.values, want[key].values)

    empty = seeded.clear(state)
    assert export(seeded, empty, "t") == {}
    assert seeded.stats(empty)["t/fullest_bucket"] == 0


def test_deltas_go_from_one_to_the_other(platform):
    plain, seeded = twin_collections()
    state, replica = trained(seeded, 2), plain.init(7)
    replica = plain.apply_delta(replica, "t", seeded.export(state, "t"))
    since = seeded.get_score(state)["t"]
    ids = {"t": jde.ids(np.arange(5, 60))}
    _, _, state = compiled(seeded).lookup(state, ids, None, None)
    state = compiled(seeded).erase(state, {"t": jde.ids(np.arange(5, 15))})
    known = np.array(list(export(plain, replica, "t")), np.int64)
    delta = seeded.export(state, "t", since=since, known_keys=known)
    replica = plain.apply_delta(replica, "t", delta)
    assert_same_rows(export(plain, replica, "t"), export(seeded, state, "t"))


def test_growth(platform):
    check_growth(Twins(*(dataclasses.replace(t, hash_seed=SEED) for t in TABLES)))


def test_inserted_rows(platform):
    twins = Twins(dataclasses.replace(CONFIG, capacity=256, hash_seed=SEED))
    keys = np.random.default_rng(0).integers(0, 500, 300)
    rows = {"t": gradients((300, 3), 0)}
    twins.insert({"t": keys}, rows, scores={"t": np.arange(1, 301, dtype=np.uint64)})
    twins.check()


def test_it_is_static(platform):
    """No operand of a call holds it: seeds differ in an attribute only."""
    plain, seeded = twin_collections()
    ids = {"t": jax.ShapeDtypeStruct((8, 2), jnp.uint32)}

    def operands(coll: jde.Tables) -> int:
        lowered = jax.jit(coll.lookup).lower(coll.init(0), ids)
        (call,) = (x for x in lowered.as_text().splitlines() if "dynemb_lookup" in x)
        return call.split("@dynemb_lookup")[1].split(")")[0].count("%")

    assert operands(plain) == operands(seeded) > 0
