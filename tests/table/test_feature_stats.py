# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""feature_stats: what became of each feature's ids, as a dict of keys says."""

import functools

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb.admission import Frequency, Sketch
from keys import keys_of_bucket
from meshes import mesh_of
from support import HostJagged, Twins, gradients, to_device

FULL = np.array(keys_of_bucket(0, 8, 170), np.int64)
TABLES = [
    jde.TableConfig("cat", dim=4, capacity=1024, feature_names=("a", "b")),
    jde.TableConfig("bag", dim=4, capacity=1024, pooling="sum"),
    jde.TableConfig(
        "rare", dim=4, capacity=1024, admission=Frequency(3, Sketch(bytes=1 << 14))
    ),
    jde.TableConfig("full", dim=4, capacity=1024, on_full="refuse"),
]


def counted(twins: Twins, ids, **flags):
    """Looks up with the oracle beside it; the counts, and those by the oracle."""
    keys = {}
    for name, each in ids.items():
        flat = each.values if isinstance(each, HostJagged) else np.asarray(each)
        if isinstance(each, HostJagged):
            flat = flat[: int(np.sum(each.lengths))]
        keys[name] = flat.reshape(-1).tolist()
    tables = {name: twins.oracle.tables[twins.coll.features[name]] for name in ids}
    before = {
        name: {k for k in keys[name] if tables[name].get(k % 2**64)} for name in ids
    }
    step = stepped(twins.coll, **flags)
    given = {name: to_device(each) for name, each in ids.items()}
    counts, residual, rows, twins.state = step(twins.state, given)
    _, expected = twins.oracle.lookup(ids, **flags)
    want = {}
    for name in ids:
        config = tables[name].config
        live = [k for k in keys[name] if k != -1]
        size = given[name].values.shape[0] if hasattr(given[name], "values") else None
        stored = [k for k in live if tables[name].get(k % 2**64)]
        without = len(live) - len(stored)
        kept_out = config.admission is not None or not flags.get("insert", True)
        want[name] = {
            "ids": len(live),
            "padding": (size or len(keys[name])) - len(live),
            "hits": sum(k in before[name] for k in live),
            "inserted": sum(k not in before[name] for k in stored),
            "refused": 0 if kept_out else without,
            "not_admitted": without if kept_out else 0,
        }
    return (
        {f: {n: int(x) for n, x in c.items()} for f, c in counts.items()},
        want,
        (
            residual,
            expected,
            rows,
        ),
    )


@functools.cache
def stepped(coll: jde.Tables, **flags):
    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, ids):
        rows, residual, state = coll.lookup(state, ids, stats=True, **flags)
        return coll.feature_stats(residual), residual, rows, state

    return step


def batch(seed: int):
    rng = np.random.default_rng(seed)
    padded = rng.integers(0, 200, (16, 3))
    padded[rng.random((16, 3)) < 0.3] = -1
    return {
        "a": rng.integers(0, 200, 48),
        "b": rng.integers(100, 300, 48),
        "bag": padded,
        "rare": rng.integers(0, 40, 64),
        "full": rng.choice(FULL, 64),
    }


@pytest.mark.parametrize("placement", [{}, {"mesh": mesh_of(8)}], ids=["one", "mesh"])
def test_counts_are_those_of_a_dict(placement):
    twins = Twins(*TABLES, **placement)
    for seed in range(5):
        flags = {"insert": False} if seed == 3 else {}
        counts, want, (residual, expected, rows) = counted(twins, batch(seed), **flags)
        assert counts == want
        d_rows = {name: gradients(x.shape, seed) for name, x in rows.items()}
        twins.apply((residual, expected), d_rows)
        for each in counts.values():
            assert all(n >= 0 for n in each.values())
            parts = ("hits", "inserted", "refused", "not_admitted")
            assert each["ids"] == sum(each[part] for part in parts)
    assert counts["full"]["refused"] > 0 and counts["rare"]["not_admitted"] > 0
    assert counts["a"]["hits"] > 0 and counts["b"]["inserted"] > 0
    got, want = twins.coll.stats(twins.state), twins.oracle.stats()
    for table in twins.coll.tables:  # owners on a mesh see an id of a device once
        hits, misses = f"{table}/hits", f"{table}/misses"
        assert got[hits] + got[misses] == want[hits] + want[misses]
        assert got[misses] <= want[misses]
        twins.assert_table(table, {"rtol": 1e-5, "atol": 1e-5})


def test_bags_of_any_length():
    twins = Twins(TABLES[1])
    bags = HostJagged.of([[1, 2], [], [2, 3, 4], [1]], capacity=10)
    counts, want, _ = counted(twins, {"bag": bags})
    assert counts == want
    assert counts["bag"] == {
        "ids": 6,
        "padding": 4,
        "hits": 0,
        "inserted": 6,
        "refused": 0,
        "not_admitted": 0,
    }
    counts, want, _ = counted(twins, {"bag": bags})
    assert counts == want and counts["bag"]["hits"] == 6


def test_they_add_up_to_the_counters_of_the_table():
    twins = Twins(*TABLES[:1])
    total = dict.fromkeys(("ids", "hits", "inserted"), 0)
    for seed in range(3):
        ids = {name: batch(seed)[name] for name in ("a", "b")}
        counts, _, _ = counted(twins, ids)
        for name in total:
            total[name] += counts["a"][name] + counts["b"][name]
    stats = twins.coll.stats(twins.state)
    assert total["hits"] == stats["cat/hits"]
    assert total["ids"] == stats["cat/hits"] + stats["cat/misses"]


def test_several_lookups_of_one_update():
    coll = jde.Tables(TABLES[:1])
    ids = jde.ids(np.arange(6).reshape(2, 3))

    @jax.jit
    def step(state, ids):
        def one(state, ids):
            rows, residual, state = coll.lookup(state, {"a": ids}, stats=True)
            return state, (residual, rows)

        state, (residuals, rows) = jax.lax.scan(one, state, ids)
        state = coll.apply_gradients(state, residuals, rows)
        return coll.feature_stats(residuals), state

    counts, state = step(coll.init(), ids)
    np.testing.assert_array_equal(counts["a"]["inserted"], [3, 3])
    assert coll.stats(state)["cat/step"] == 1


def test_without_counts_it_says_what_to_write():
    coll = jde.Tables(TABLES[:1])
    ids = {"a": jde.ids(np.arange(3))}
    _, residual, _ = coll.lookup(coll.init(), ids)
    with pytest.raises(ValueError, match="stats=True"):
        coll.feature_stats(residual)
    with pytest.raises(TypeError, match="not dict"):
        coll.feature_stats({})
