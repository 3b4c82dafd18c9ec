# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows below a table move from the stores that saved them into other stores.

Here one process restores its own checkpoint. test_checkpoints_of_processes moves rows
between numbers of processes.
"""

import dataclasses

import pytest

import jax_dynemb as jde
from jax_dynemb._src.files.checkpoint import former
from walks import BELOW, PLAIN, Walk, cold_batches, rows_in, rows_of


@pytest.fixture
def walk(tmp_path):
    """Returns a run with a checkpoint of one process."""
    walk, batches = Walk(jde.stores.Memory(PLAIN)), cold_batches(1, 60)
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches)
        jde.checkpoint.save(
            tmp_path / "run", 60, walk.state, tables=walk.coll, prefetcher=prefetcher
        )
    return walk


@pytest.fixture
def of_two_processes(monkeypatch):
    """Restores checkpoints as if two processes had saved them."""
    monkeypatch.setattr(former, "_processes", lambda saved: 2)


def restored(walk, tmp_path, stores, coll=None, **options):
    coll = walk.coll if coll is None else coll
    return jde.checkpoint.restore(
        tmp_path / "run", coll.init(5), tables=coll, stores={"cat": stores}, **options
    )


def test_each_row_moves_and_training_goes_on(tmp_path, walk):
    expected, old = rows_of(walk.plain, walk.whole), walk.stores["cat"]
    new = jde.stores.Memory(PLAIN)
    back = restored(walk, tmp_path, new, former_stores={"cat": [old]})
    assert back.notes[0].endswith(
        f"{len(rows_in(old))} rows came from the stores of 1 process."
    )
    above, below = rows_of(walk.coll, back.tree), rows_in(new)
    assert below == rows_in(old) and len(below) > 100
    assert above | below == expected and not above.keys() & below.keys()
    walk.state, walk.stores = back.tree, {"cat": new}
    batches = cold_batches(2, 40)
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches)
        walk.check(prefetcher)


def test_rows_move_into_a_table_without_a_store(tmp_path, walk):
    expected, plain = rows_of(walk.plain, walk.whole), jde.Tables([PLAIN])
    new, given = jde.stores.Memory(PLAIN), {"cat": [walk.stores["cat"]]}
    back = restored(walk, tmp_path, new, plain, former_stores=given)
    assert rows_of(plain, back.tree) == expected


def other_run():
    walk, batches = Walk(jde.stores.Memory(PLAIN)), cold_batches(3, 60)
    with walk.prefetcher(batches) as prefetcher:
        walk.run(prefetcher, batches)
        prefetcher.commit(walk.state, "step-60", 60)
    return walk.stores["cat"]


class Full(jde.stores.Memory):
    """Has room for no row."""

    def put(self, keys, packed, step=0):
        """Refuses rows."""
        return super().put(keys, packed, step) & False


def mistakes(walk, tmp_path):
    """Options of restore, and the sentence that each gets."""
    old, new = walk.stores["cat"], jde.stores.Memory(PLAIN)
    wide = dataclasses.replace(PLAIN, dim=PLAIN.dim + 1)
    return {
        "two": ((new, {"cat": [old, old]}), "are 2, but .* 1 process:"),
        "not empty": ((old, {"cat": [old]}), "Leave out former_stores if"),
        "another name": ((new, {"cats": [old]}), r"\['cats'\], but .* only \['cat'\]"),
        "another run": ((new, {"cat": [other_run()]}), "another run .*'step-60'"),
        "another table": ((new, {"cat": [jde.stores.Memory(wide)]}), "former store"),
        "full": ((Full(PLAIN), {"cat": [old]}), "Raise disk_gigabytes"),
    }


@pytest.mark.parametrize(
    "name",
    ["two", "not empty", "another name", "another run", "another table", "full"],
)
def test_what_does_not_fit_is_refused_and_the_old_store_kept(tmp_path, walk, name):
    before = rows_in(walk.stores["cat"])
    (store, given), sentence = mistakes(walk, tmp_path)[name]
    with pytest.raises(ValueError, match=sentence):
        restored(walk, tmp_path, store, former_stores=given)
    assert rows_in(walk.stores["cat"]) == before


@pytest.mark.usefixtures("of_two_processes")
@pytest.mark.parametrize(
    ("filled", "sentence"),
    [(False, "Pass former_stores={'cat'"), (True, "empty stores. Give it another")],
)
def test_stores_of_two_processes_are_asked_for(tmp_path, walk, filled, sentence):
    store = walk.stores["cat"] if filled else jde.stores.Memory(PLAIN)
    with pytest.raises(ValueError, match=sentence):
        restored(walk, tmp_path, store)


def test_a_table_that_had_no_store_has_no_former_ones(tmp_path):
    plain, given = jde.Tables([PLAIN]), {"cat": [jde.stores.Memory(PLAIN)]}
    jde.checkpoint.save(tmp_path / "run", 1, plain.init(0), tables=plain)
    with pytest.raises(ValueError, match=r"former_stores names \['cat'\].* only \[\]"):
        restored(None, tmp_path, jde.stores.Memory(PLAIN), plain, former_stores=given)


@pytest.mark.usefixtures("of_two_processes")
def test_logs_that_are_not_at_hand_are_named(tmp_path, walk):
    tier = jde.tiers.ssd(tmp_path / "logs", host_rows=BELOW.tier.host_rows)
    coll = jde.Tables([dataclasses.replace(BELOW, tier=tier)])
    with pytest.raises(
        FileNotFoundError, match="every process can read .*logs/0-of-2/cat"
    ):
        restored(walk, tmp_path, jde.stores.Memory(PLAIN), coll)
