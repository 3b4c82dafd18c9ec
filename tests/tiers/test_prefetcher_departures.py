# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Many rows go down and come back, and none is lost."""

import functools
import os
import time

import jax
import numpy as np
import pytest

import jax_dynemb as jde

DEPARTURES = int(os.environ.get("DYNEMB_DEPARTURES", "0"))
IDS, BATCH = 1_000_000, 8192


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Log", "Memory"])
def test_nothing_is_lost_over_many_departures(tmp_path, kind, capsys):
    """A table of 65,536 rows for a million ids; each row counts its updates.

    DYNEMB_DEPARTURES=100000000 by night; 1,000,000 with a log, and 100,000 with a dict,
    otherwise. Sums over all rows and each row are compared with NumPy's counts.
    """
    departures = DEPARTURES or (1_000_000 if kind == "Log" else 100_000)
    config = jde.TableConfig(
        "cat",
        dim=2,
        capacity=IDS,
        initializer=jde.initializers.constant(0.0),
        optimizer=jde.optim.sgd(1.0),
        tier=jde.tiers.ssd(tmp_path, host_rows=65_536, ring_rows=2 * BATCH),
    )
    coll = jde.Tables([config])
    store = jde.stores.Memory(config)
    if kind == "Log":
        store = jde.stores.Log(tmp_path, config, segment_megabytes=4, keep=1)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        ones = {"cat": jax.numpy.ones_like(rows["cat"])}
        return coll.apply_gradients(state, residual, ones)

    rng, updates = np.random.default_rng(11), np.zeros(IDS, np.int64)

    def batches():
        while True:
            ids = rng.integers(0, IDS, BATCH)
            yield {"cat": ids}, ids

    state, turn, begin = coll.init(0), 0, time.perf_counter()
    with jde.tiers.prefetch_rows(coll, batches(), stores={"cat": store}) as prefetcher:
        while prefetcher.stats()["cat/departed"] < departures:
            (ids, keys), state = prefetcher.next(state)
            state = step(state, ids)
            np.add.at(updates, keys, 1)
            turn += 1
            if turn % 50 == 0:
                prefetcher.commit(state, f"turn-{turn}")
        state = prefetcher.drain(state)
        moved, seconds = prefetcher.stats(), time.perf_counter() - begin
    stats = coll.stats(state)
    assert (
        stats["cat/refused"] == stats["cat/lost_updates"] == moved["cat/no_room"] == 0
    )
    assert stats["cat/departed"] == moved["cat/departed"] >= departures
    with capsys.disabled():
        print(
            f"\n{kind}: {moved['cat/departed']:,} departed, {moved['cat/returned']:,} "
            f"returned, {turn} steps, {seconds:.1f} s, waited "
            f"{moved['seconds_waited']:.1f} s"
        )
    rows = np.zeros((IDS, 2), np.float32)
    keys = store.keys()
    for begin in range(0, len(keys), 1 << 16):
        some = keys[begin : begin + (1 << 16)]
        found, packed = store.get(some)
        assert found.all() and not rows[some].any()
        rows[some] = store.layout.rows(packed)
    for chunk in coll.export(state, "cat"):
        assert not rows[chunk.keys].any()  # in one of the two
        rows[chunk.keys] = chunk.rows
    assert -rows.sum(dtype=np.float64) == 2 * updates.sum()
    np.testing.assert_array_equal(rows, -np.stack([updates, updates], axis=1))
