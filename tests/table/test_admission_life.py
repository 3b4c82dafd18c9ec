# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Counts of unseen ids through growth, checkpoints and a table's other operations."""

import dataclasses

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from growth import grow
from jax_dynemb.admission import Frequency, Sketch
from meshes import mesh_of
from support import Twins, export

RULE = Frequency(3, Sketch(1 << 12))
INITIALIZER = jde.initializers.uniform(-0.1, 0.1)
CONFIG = jde.TableConfig(
    "t", dim=4, capacity=1024, admission=RULE, initializer=INITIALIZER
)


def zipf(seed: int, size: int = 64) -> np.ndarray:
    return np.random.default_rng(seed).zipf(1.2, size) % 500


@pytest.mark.parametrize("mesh", [None, 4])
def test_growth_keeps_every_count(mesh):
    tables = [CONFIG, dataclasses.replace(CONFIG, name="u", feature_names=())]
    twins = Twins(*tables, **({} if mesh is None else {"mesh": mesh_of(mesh)}))
    for seed in range(3):
        twins.train({"t": zipf(seed), "u": zipf(seed + 9)}, seed=seed)
    grow(twins, t=4096)
    for seed in range(3, 6):
        twins.train({"t": zipf(seed), "u": zipf(seed + 9)}, seed=seed)
    twins.check({"rtol": 1e-5, "atol": 1e-5})


def run(coll: jde.Tables, state, seeds):
    lookup = jax.jit(coll.lookup, donate_argnums=0)
    for seed in seeds:
        _, _, state = lookup(state, {"t": jde.ids(zipf(seed))})
    return state


def place(devices: int | None) -> dict:
    return {} if devices is None else {"mesh": mesh_of(devices)}


@pytest.mark.parametrize("after", [None, 8])
def test_a_checkpoint_in_between_changes_nothing(tmp_path, after):
    first = jde.Tables([CONFIG], **place(2))
    state = run(first, first.init(3), range(3))
    jde.checkpoint.save(tmp_path, 1, state, tables=first, wait=True)
    whole = run(first, state, range(3, 6))
    second = jde.Tables([CONFIG], **place(after))
    again = jde.checkpoint.restore(tmp_path, second.init(0), tables=second).tree
    again = run(second, again, range(3, 6))
    assert set(export(second, again, "t")) == set(export(first, whole, "t"))
    np.testing.assert_array_equal(again["t"].sketch, whole["t"].sketch)
    assert second.stats(again)["t/not_admitted"] == first.stats(whole)["t/not_admitted"]


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(CONFIG, admission=Frequency(3, Sketch(1 << 13))),
        dataclasses.replace(CONFIG, capacity=2048, admission=RULE),
    ],
    ids=["size", "buckets"],
)
def test_another_sketch_admits_no_id_late(tmp_path, other):
    first, second = jde.Tables([CONFIG]), jde.Tables([other])
    state = run(first, first.init(3), range(3))
    jde.checkpoint.save(tmp_path, 1, state, tables=first, wait=True)
    again = jde.checkpoint.restore(tmp_path, second.init(0), tables=second)
    assert set(export(second, again.tree, "t")) == set(export(first, state, "t"))
    assert any("admitted early or in time" in note for note in again.notes)
    # Every id that the first table would admit now, the second one admits too.
    for seed in range(3, 6):
        before, new = run(first, state, [seed]), run(second, again.tree, [seed])
        assert set(export(first, before, "t")) <= set(export(second, new, "t"))
        state, again = before, again._replace(tree=new)


def test_rules_come_and_go_with_a_checkpoint(tmp_path):
    plain = jde.Tables([dataclasses.replace(CONFIG, admission=None)])
    ruled = jde.Tables([CONFIG])
    for first, second in ((plain, ruled), (ruled, plain)):
        state = run(first, first.init(3), range(3))
        path = tmp_path / str(first is plain)
        jde.checkpoint.save(path, 1, state, tables=first, wait=True)
        again = jde.checkpoint.restore(path, second.init(0), tables=second)
        assert set(export(second, again.tree, "t")) == set(export(first, state, "t"))
        run(second, again.tree, range(3, 5))


def test_frozen_tables_need_no_sketch():
    coll = jde.Tables([CONFIG])
    state = run(coll, coll.init(0), range(3))
    served, arrays = jde.export.frozen(coll, state)
    ids = {"t": jde.ids(zipf(0))}
    rows, found, _ = served.find(arrays, ids)
    expected, where, _ = coll.find(state, ids)
    np.testing.assert_array_equal(rows["t"], expected["t"])
    np.testing.assert_array_equal(found["t"], where["t"])


def test_clear_and_erase():
    twins = Twins(CONFIG)
    twins.lookup({"t": [1, 1, 1, 2, 2]})
    twins.erase({"t": [1]})
    twins.lookup({"t": [1, 3, 3, 3, 3]})  # an erased key keeps its count
    assert set(export(twins.coll, twins.state, "t")) == {1, 3}
    twins.state, _ = twins.coll.clear(twins.state), twins.oracle.clear()
    twins.lookup({"t": [1, 2, 2, 2, 4]})
    assert set(export(twins.coll, twins.state, "t")) == {2}
    twins.check()
