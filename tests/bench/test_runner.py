# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The steps that are timed do the work that they are said to do."""

import dataclasses

import jax
import numpy as np
import pytest

from suite import filled, steps
from suite.job import Job
from suite.runner import Runner
from suite.timing import Effort
from suite.workloads import Case

POOLED = Case(tables=2, rows=700, dim=8, batch=16, bag=3, pooled=True)
PLAIN = dataclasses.replace(POOLED, bag=1, pooled=False)
EFFORT = Effort(seconds=0.0, repeats=2, fewest=2)


def figure(**job):
    (only,) = Runner(EFFORT, 1e9).wall("test", [Job("x", **job)])
    return only


def rows_after(job, count):
    """The rows of the first table by key, after some steps."""
    for ready in Runner(EFFORT, 1e9).ready([job]):
        ready.chain.run(count)
        carry = ready.chain.carry
        model = isinstance(carry, steps.NnxStep)
        state = carry.model.sparse.get_state() if model else carry
        rows = {}
        for part in ready.coll.export(state, "t0"):
            rows |= dict(zip(part.keys.tolist(), part.rows, strict=True))
        return rows
    raise AssertionError("no job was made ready")


def inserted(ready):
    stats = ready.coll.stats(ready.chain.carry)
    return sum(n for name, n in stats.items() if name.endswith("/inserted"))


@pytest.mark.parametrize("case", [POOLED, PLAIN], ids=["pooled", "plain"])
def test_tables_hold_every_id_and_the_step_copies_none(case):
    found = figure(case=case, optimizer="adam")
    assert found.stats["rows"] == case.tables * case.rows
    assert found.stats["refused"] == found.stats["lost_updates"] == 0
    assert found.in_place
    assert found.scratch_bytes is not None
    assert 0 < found.least_ms <= found.ms


def test_without_donation_the_copy_is_seen(monkeypatch):
    def jit_without_donation(function, **options):
        del options
        return jax.jit(function)

    lookalike = type("jax", (), {"jit": staticmethod(jit_without_donation)})
    monkeypatch.setattr(steps, "jax", lookalike)
    # Nothing is donated, so the tables of the first step are there for the second.
    assert figure(case=PLAIN, optimizer="sgd").in_place is False


def test_fresh_ids_are_all_inserted():
    found = figure(case=PLAIN, ids="fresh", optimizer="sgd")
    assert found.stats["inserted"] == found.stats["rows"]
    # The last repeat started from empty tables and stopped before they were full.
    taken = PLAIN.rows // PLAIN.ids_per_table
    assert found.stats["rows"] == taken * PLAIN.num_ids


def test_a_full_table_evicts_a_row_for_each_that_it_inserts():
    found = figure(case=PLAIN, ids="fresh", optimizer="sgd", load=1.0)
    slots = PLAIN.tables * 8 * 128  # six buckets, made a number that meshes divide
    assert found.stats["rows"] == slots
    assert found.stats["inserted"] - found.stats["evicted"] == slots
    assert found.stats["refused"] == 0


@pytest.mark.parametrize("load", [2 / 3, 1.0])
def test_fresh_ids_were_never_seen_before_in_any_step(load):
    job = Job("x", PLAIN, "fresh", "sgd", load=load)
    for ready in Runner(EFFORT, 1e9).ready([job]):
        for count in (3, job.num_batches):
            ready.before()
            before = inserted(ready)
            ready.chain.run(count)
            assert inserted(ready) - before == count * PLAIN.num_ids


@pytest.mark.parametrize("optimizer", [None, "sgd", "rowwise_adagrad", "adam"])
def test_memory_is_foretold(optimizer):
    case = dataclasses.replace(PLAIN, rows=20_000)
    job = Job("x", case, optimizer=optimizer)
    coll = filled.collection(case, optimizer or "sgd", job.dtype, job.load)
    state = jax.eval_shape(lambda: coll.init(0))
    tables = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))
    assert job.memory() == pytest.approx(tables, rel=0.05)


def test_half_as_many_bytes_with_16_bit_rows():
    full, half = (figure(case=PLAIN, dtype=dtype) for dtype in ("fp32", "bf16"))
    ids = PLAIN.num_ids * 8
    ratio = PLAIN.dim * 4
    rows = full.floor_ms * 1e6 - ids
    assert rows % ratio == pytest.approx(0, abs=1e-6)
    assert half.floor_ms * 1e6 - ids == pytest.approx(rows / 2)


@pytest.mark.parametrize("case", [POOLED, PLAIN], ids=["pooled", "plain"])
def test_the_nnx_step_trains_the_same_rows(case):
    job = Job("x", case, optimizer="adagrad")
    plain = rows_after(job, 3)
    model = rows_after(dataclasses.replace(job, step="nnx"), 3)
    untrained = rows_after(dataclasses.replace(job, optimizer=None), 3)
    assert plain.keys() == model.keys()
    for key, row in plain.items():
        np.testing.assert_allclose(model[key], row, rtol=1e-6, atol=1e-8)
    moved = sum(bool(np.any(untrained[key] != row)) for key, row in plain.items())
    assert 0 < moved < len(plain)
