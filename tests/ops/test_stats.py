# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""stats and clear."""

import jax
import numpy as np

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops.bucket_rows import bucket_rows, fullest_buckets
from keys import keys_of_bucket
from support import Twins, export


def test_every_counter_by_hand(platform):
    twins = Twins(jde.TableConfig(name="cat", dim=4, capacity=200))
    keys = keys_of_bucket(0, 2, 260)
    _, residuals = twins.lookup({"cat": keys[:128]})
    twins.lookup({"cat": keys[128:130]})  # evicts keys 0 and 1
    twins.apply(residuals, {"cat": np.ones((128, 4))})
    twins.lookup({"cat": keys[130:260] + [-1]})  # 130 for 128 places
    assert twins.coll.stats(twins.state) == {
        "cat/rows": 128,
        "cat/capacity": 256,
        "cat/load_factor": 0.5,
        "cat/fullest_bucket": 128,
        "cat/mean_bucket": 64.0,
        "cat/inserted": 128 + 2 + 128,
        "cat/evicted": 2 + 128,
        "cat/evicted_young": 0,
        "cat/refused": 2,
        "cat/lost_updates": 2,
        "cat/malformed_lengths": 0,
        "cat/nonfinite": 0,
        "cat/hits": 0,
        "cat/misses": 260,
        "cat/not_admitted": 0,
        "cat/pinned": 0,
        "cat/erased": 0,
        "cat/removed_by_rule": 0,
        "cat/step": 1,
        "cat/lookups": 3,
    }
    twins.check()


def test_a_fresh_table_has_zeros(platform):
    twins = Twins(jde.TableConfig(name="t", dim=1, capacity=1000))
    stats = twins.coll.stats(twins.state)
    assert stats.pop("t/capacity") == 1024
    assert set(stats.values()) == {0}


def test_values_are_python_numbers(platform):
    twins = Twins(jde.TableConfig(name="t", dim=1, capacity=1000))
    for value in twins.coll.stats(twins.state).values():
        assert type(value) in (int, float)


def test_clear_empties_and_tables_live_on(platform):
    twins = Twins(
        jde.TableConfig(name="t", dim=4, capacity=256, optimizer=jde.optim.adam(0.1)),
        jde.TableConfig(name="u", dim=2, capacity=256),
    )
    first, residuals = twins.lookup({"t": [1, 2, 3], "u": [5]})
    twins.apply(residuals, {"t": np.ones((3, 4)), "u": np.ones((1, 2))})
    twins.state = twins.coll.clear(twins.state)
    twins.oracle.clear()
    for name in "tu":
        assert export(twins.coll, twins.state, name) == {}
    assert not twins.find({"t": [1, 2, 3]})[1]["t"].any()
    again, _ = twins.lookup({"t": [3, 2, 1]})
    np.testing.assert_array_equal(again["t"], first["t"][::-1])
    twins.check()


def test_clear_under_jit(platform):
    twins = Twins(jde.TableConfig(name="t", dim=4, capacity=256))
    twins.lookup({"t": [1, 2, 3]})
    state = jax.jit(twins.coll.clear, donate_argnums=0)(twins.state)
    assert twins.coll.stats(state)["t/rows"] == 0


def test_all_but_events_are_in_every_row(platform):
    config = jde.TableConfig(name="t", dim=2, capacity=1000)
    assert config.max_shards == 8
    twins = Twins(config)
    for keys in ([1, 2, 3], [2, 4]):
        _, residuals = twins.lookup({"t": keys})
        twins.apply(residuals, {"t": np.ones((len(keys), 2))})
    twins.erase({"t": [3]})
    words = np.asarray(twins.state["t"].counters)
    rows = words.view(np.uint64).reshape(config.max_shards, -1)
    names = _ffi.constants()["counters"]
    events = {"rows": 3, "inserted": 4, "evicted": 0, "refused": 0, "lost_updates": 0}
    events |= {"erased": 1, "hits": 1, "misses": 4, "not_admitted": 0}
    events |= {"removed_by_rule": 0, "pinned": 0, "evicted_young": 0}
    events |= {"moment": 2}  # which is a shard's, as nonces are
    nonces = {name for name in names if name.startswith("nonce")}
    for name, column in zip(names, rows.T.tolist(), strict=True):
        of_a_shard = name in events or name in nonces
        rest = [0] * 7 if of_a_shard else [column[0]] * 7
        assert column == [events.get(name, column[0]), *rest], name
    drawn = [rows[0, names.index(name)] > 0 for name in ("nonces_1", "nonces_2")]
    assert all(drawn) and rows[0, names.index("nonce")] > 0
    assert rows[0, names.index("clock")] == 2 and rows[0, names.index("step")] == 2


def test_counting_rows_of_buckets_takes_no_memory(platform):
    """A fraction of the index is read, and nothing of its size is written."""
    index = jax.ShapeDtypeStruct((2**16, 544), np.uint32)
    ranges = (("t", ((0, 2**15), (2**15, 2**16))),)
    program = fullest_buckets.lower(ranges, {"t": index}).compile()
    assert program.memory_analysis().temp_size_in_bytes <= 2**16 * 16


def test_rows_of_buckets_by_hand(platform):
    index = np.zeros((3, 544), np.uint32)
    index[1, :32] = 0x01FF8001  # four digests a word, none of them 0
    index[2, 3] = 0x00FF0080
    index[0, 32:] = 0xFFFFFFFF  # keys and scores are not digests
    assert bucket_rows(index).tolist() == [0, 128, 2]
    ranges = (("t", ((0, 1), (0, 3), (2, 3))),)
    assert fullest_buckets(ranges, {"t": index}).tolist() == [0, 128, 2]
