# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Marks, deltas and chains of files continue one history, and no other."""

import dataclasses
import json
import pickle

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from support import assert_same_rows, export

CONFIG = jde.TableConfig(
    "t", dim=4, capacity=1024, optimizer=jde.optim.sgd(1.0), log_removed=1000
)
COLL = jde.Tables([CONFIG])
WITHOUT_LOG = jde.Tables([dataclasses.replace(CONFIG, log_removed=0)])


def look(state, first: int = 0, coll=COLL):
    return coll.lookup(state, {"t": jde.ids(np.arange(first, first + 50))})[2]


def saved(path, state, coll=COLL) -> None:
    jde.checkpoint.save(path, 1, state, tables=coll, wait=True)


def restored(path, coll=COLL):
    """As a process that begins again."""
    return jde.checkpoint.restore(path, coll.init(3), tables=coll).tree


def stored(marks):
    """Marks as JSON beside a checkpoint keeps them."""
    text = json.dumps({name: mark.to_json() for name, mark in marks.items()})
    return {name: jde.Mark.from_json(x) for name, x in json.loads(text).items()}


@pytest.mark.parametrize("coll", [COLL, WITHOUT_LOG])
def test_a_mark_of_another_run(coll):
    known = {"t": np.arange(50)}
    _, marks = coll.export_delta(look(coll.init(0), coll=coll))
    other = look(look(coll.init(0), coll=coll), 50, coll)
    with pytest.raises(ValueError, match="is of another run.*leave it out of since="):
        coll.export_delta(other, marks, known_keys=known)
    coll.export_delta(other)  # the advice


@pytest.mark.parametrize("coll", [COLL, WITHOUT_LOG])
def test_a_delta_of_another_run(coll):
    links = []
    for _ in range(2):
        state = look(coll.init(0), coll=coll)
        first, marks = coll.export_delta(state)
        known = {"t": np.arange(50)}
        second, _ = coll.export_delta(look(state, 50, coll), marks, known_keys=known)
        pair = [
            dataclasses.replace(each["t"], chunks=list(each["t"]))
            for each in (first, second)
        ]
        links.append(pickle.loads(pickle.dumps(pair)))
    (a0, _), (_, b1) = links
    replica = coll.apply_delta(coll.init(0), "t", a0)
    with pytest.raises(ValueError, match="is of another run than the replica"):
        coll.apply_delta(replica, "t", b1, at=a0.until)
    assert coll.stats(replica)["t/rows"] == 50


def test_marks_beside_a_checkpoint(tmp_path):
    state = look(COLL.init(0))
    deltas, marks = COLL.export_delta(state)
    replica = COLL.apply_delta(COLL.init(1), "t", deltas["t"])
    saved(tmp_path, state)
    beside = stored(marks)
    # What the run does after the checkpoint, and then it dies.
    ahead, later = COLL.export_delta(look(state, 30), beside)
    gone = COLL.apply_delta(
        jax.tree.map(np.copy, replica), "t", ahead["t"], at=marks["t"]
    )
    state = restored(tmp_path)
    for first in (100, 200, 300):
        state = look(state, first)
    with pytest.raises(ValueError, match="is of a history that was left"):
        COLL.export_delta(state, later)
    again, _ = COLL.export_delta(state, beside)
    replica = COLL.apply_delta(replica, "t", again["t"], at=beside["t"])
    assert_same_rows(export(COLL, replica, "t"), export(COLL, state, "t"))
    with pytest.raises(ValueError, match="out of order, or of another run or history"):
        COLL.apply_delta(gone, "t", again["t"], at=later["t"])


def test_a_branch_of_a_state():
    state = look(COLL.init(0))
    _, marks = COLL.export_delta(look(jax.tree.map(np.copy, state), 100))
    with pytest.raises(ValueError, match="is of a history that was left"):
        COLL.export_delta(look(look(state, 200), 300), marks)


def test_a_state_before_keys_were_erased():
    state = look(COLL.init(0))
    before = jax.tree.map(np.copy, state)
    _, marks = COLL.export_delta(COLL.erase(state, {"t": jde.ids(np.arange(5))}))
    with pytest.raises(ValueError, match="more keys had been removed at the mark"):
        COLL.export_delta(before, marks)


def test_a_mark_of_an_older_version():
    state = look(COLL.init(0))
    _, marks = COLL.export_delta(state)
    fields = marks["t"].to_json()
    del fields["identity"]
    old = jde.Mark.from_json(fields)
    assert old.identity is None
    with pytest.warns(RuntimeWarning, match="did not note the run"):
        deltas, now = COLL.export_delta(look(state, 100), {"t": old})
    assert deltas["t"].since == old and now["t"].identity is not None
    with pytest.raises(ValueError, match="no identity"):
        jde.Mark.from_json(fields | {"identity": {"run": "x"}})


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_files_of_another_run(tmp_path):
    folder = tmp_path / "x"
    state = look(COLL.init(0))
    jde.export.safetensors(folder, COLL, state, quiet=True)
    state = look(state, 100)
    assert jde.export.delta(folder, COLL, state)["t"] is not None
    before = files(folder)
    other = COLL.init(0)
    for first in range(9):
        other = look(other, first)
    with pytest.raises(ValueError, match="of another run.*into another directory"):
        jde.export.delta(folder, COLL, other)
    assert files(folder) == before
    assert jde.export.delta(folder, COLL, look(state, 200))["t"] is not None
    jde.export.safetensors(tmp_path / "y", COLL, other, quiet=True)  # the advice
    assert jde.export.delta(tmp_path / "y", COLL, look(other, 90))["t"] is not None


def test_files_after_a_resume(tmp_path):
    folder = tmp_path / "x"
    state = look(COLL.init(0))
    jde.export.safetensors(folder, COLL, state, quiet=True)
    saved(tmp_path / "at", state)
    goes_on = restored(tmp_path / "at")
    assert jde.export.delta(folder, COLL, look(goes_on, 100))["t"] is not None
    before = files(folder)
    back = restored(tmp_path / "at")
    for first in range(9):
        back = look(back, first)
    with pytest.raises(ValueError, match="of a history that was left"):
        jde.export.delta(folder, COLL, back)
    assert files(folder) == before


def test_files_of_a_checkpoint(tmp_path):
    """A checkpoint that a command made files of, and the run that goes on."""
    from jax_dynemb.__main__ import main as command

    state = look(COLL.init(0))
    saved(tmp_path / "at", state)
    folder = tmp_path / "x"
    out = [str(tmp_path / "at"), str(folder), "--to=safetensors"]
    assert command(["convert", *out]) == 0
    assert jde.export.delta(folder, COLL, look(state, 100))["t"] is not None
    with pytest.raises(ValueError, match="of another run"):
        jde.export.delta(folder, COLL, look(look(COLL.init(0)), 100))


def test_an_import_is_a_run_of_its_own(tmp_path):
    folder = tmp_path / "x"
    state = look(COLL.init(0))
    jde.export.safetensors(folder, COLL, state, quiet=True)
    imported = jde.import_.safetensors(folder, COLL, state, quiet=True).state
    for first in range(9):
        imported = look(imported, first)
    with pytest.raises(ValueError, match="of another run"):
        jde.export.delta(folder, COLL, imported)
