# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Workloads of tables that differ and of jagged bags: what is done, and its floor."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from suite import filled, static_jax
from suite.job import Job
from suite.runner import Runner
from suite.timing import Effort
from suite.workloads import CASES, Case, Mixed, lengths_of, minimum_bytes

WIDE = Case(1, 700, 12, 16, 3, True, jagged=True)
SMALL = Case(1, 3, 4, 16, 1, True)
MIXED = Mixed((WIDE, SMALL))


def test_lengths_add_up_and_differ():
    case = CASES["w20"]
    lengths = lengths_of(case)
    assert lengths.sum() == case.num_ids and lengths.shape == (case.batch,)
    assert lengths.min() == 0 and lengths.max() > 5 * case.bag
    assert np.median(lengths) < case.bag


def test_the_floor_is_that_of_the_tables_together():
    job = Job("x", MIXED, "zipf", "adam")
    counts = [len(np.unique(ids)) for ids in job.batches()[0]]
    parts = zip(MIXED.parts, counts, strict=True)
    assert job.floor_bytes() == sum(minimum_bytes(p, n, "adam") for p, n in parts)
    most = [ids.max() for ids in job.batches()[1]]
    assert most[0] < WIDE.rows and most[1] < SMALL.rows


@pytest.mark.parametrize("optimizer", [None, "adam"])
def test_tables_that_differ_hold_their_own_ids_and_are_trained(optimizer):
    runner = Runner(Effort(seconds=0.0, repeats=2, fewest=2), 1e9)
    (figure,) = runner.wall("test", [Job("x", MIXED, "zipf", optimizer)])
    assert figure.stats["rows"] == WIDE.rows + SMALL.rows
    assert figure.stats["refused"] == figure.stats["evicted"] == 0
    assert figure.in_place


@pytest.mark.parametrize("work", ["eval", "sgd", "rowwise_adagrad", "adam"])
def test_the_peer_in_plain_jax_sums_bags_and_trains(work):
    """Compared with NumPy: the sum of each bag, and one step from rows of zeros."""
    parts, ids = MIXED.parts, Job("x", MIXED).batches()[0]
    tables = static_jax.init(parts, work, "float32")
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=t["rows"].shape).astype(np.float32) for t in tables]
    tables = [{**t, "rows": jnp.asarray(r)} for t, r in zip(tables, rows, strict=True)]
    batch = static_jax.to_device(parts, ids)
    d_rows = static_jax.gradients(parts, "float32")
    new, outputs = static_jax.step(parts, work)(tables, batch, d_rows)
    for part, own, row, out, table in zip(parts, ids, rows, outputs, new, strict=True):
        bags = np.repeat(np.arange(part.batch), part.bag_lengths)
        sums = np.zeros((part.batch, part.dim), np.float32)
        np.add.at(sums, bags, row[own])
        np.testing.assert_allclose(out, sums, rtol=1e-5, atol=1e-5)
        uses = np.bincount(own, minlength=part.rows)
        moved = np.asarray(table["rows"]) - row
        assert ((moved != 0).any(axis=1) == ((uses > 0) & (work != "eval"))).all()
        if work == "sgd":
            expected = -static_jax.LEARNING_RATE * 1e-3 * uses[:, None]
            np.testing.assert_allclose(moved, expected + 0 * moved, atol=1e-6)


def test_a_jagged_batch_has_the_bags_that_were_drawn():
    job = Job("x", MIXED)
    coll = filled.collection(MIXED, "sgd", "fp32", job.load)
    batch = filled.to_device(coll, MIXED, job.batches()[0])
    assert isinstance(batch["t0"], jde.Jagged)
    assert batch["t0"].lengths.tolist() == lengths_of(WIDE).tolist()
    types = {"t0": filled.ids_type(WIDE), "t1": filled.ids_type(SMALL)}
    assert jax.tree.map(np.shape, batch) == jax.tree.map(lambda t: t.shape, types)
