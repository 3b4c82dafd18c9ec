# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""export: the live rows, compact, in chunks, above a score."""

import numpy as np
import pytest

import jax_dynemb as jde
from support import Twins, export


def make(**options) -> Twins:
    options = {"dim": 4, "capacity": 1024} | options
    return Twins(jde.TableConfig(name="t", **options))


def test_an_empty_table_exports_nothing(platform):
    twins = make()
    assert export(twins.coll, twins.state, "t") == {}


@pytest.mark.parametrize("chunk_buckets", [1, 3, 8, 100])
def test_chunks_hold_every_row_once(platform, chunk_buckets):
    twins = make(optimizer=jde.optim.adam(0.1))
    keys = np.arange(1, 301) * 10_007
    _, residuals = twins.lookup({"t": keys})
    twins.apply(residuals, {"t": np.ones((300, 4))})
    rows = export(twins.coll, twins.state, "t", chunk_buckets=chunk_buckets)
    assert set(rows) == set(keys.tolist())
    for key, row in twins.oracle.export("t").items():
        np.testing.assert_allclose(rows[key].values, row.values, rtol=1e-5)
        np.testing.assert_allclose(rows[key].state["mu"], row.state["mu"], rtol=1e-5)


def test_score_threshold(platform):
    twins = make()
    twins.lookup({"t": [1, 2, 3]})
    twins.lookup({"t": [3, 4]})
    twins.lookup({"t": [5]})
    scores = {k: r.score for k, r in export(twins.coll, twins.state, "t").items()}
    assert scores == {1: 1, 2: 1, 3: 2, 4: 2, 5: 3}
    for min_score, expected in [(1, {1, 2, 3, 4, 5}), (2, {3, 4, 5}), (4, set())]:
        got = export(twins.coll, twins.state, "t", min_score=min_score)
        assert set(got) == expected


def test_exporting_changes_nothing(platform):
    twins = make()
    twins.lookup({"t": [1, 2, 3]})
    export(twins.coll, twins.state, "t")
    twins.check()
    twins.lookup({"t": [3, 4]})
    twins.check()


def test_exported_rows_can_be_inserted_elsewhere(platform):
    source = make(optimizer=jde.optim.adagrad(0.1), score_strategy="lfu")
    for seed in range(3):
        rng = np.random.default_rng(seed)
        _, residuals = source.lookup({"t": rng.integers(0, 400, 300)})
        source.apply(residuals, {"t": np.ones((300, 4))})
    # another capacity, so other buckets and other slots
    target = make(optimizer=jde.optim.adagrad(0.1), score_strategy="lfu", capacity=2048)
    for chunk in source.coll.export(source.state, "t"):
        target.insert(
            {"t": chunk.keys},
            {"t": chunk.rows},
            optimizer_state={"t": chunk.optimizer_state},
            scores={"t": chunk.scores},
        )
    target.check()
    old = export(source.coll, source.state, "t")
    new = export(target.coll, target.state, "t")
    assert old.keys() == new.keys()
    for key, row in old.items():
        np.testing.assert_array_equal(row.values, new[key].values)
        assert row.score == new[key].score


def test_unknown_table_is_named(platform):
    twins = make()
    with pytest.raises((KeyError, ValueError), match="nope"):
        list(twins.coll.export(twins.state, "nope"))
