# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Ids that wait for admission: their counts go through files, whichever they are."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb.__main__ import main as command
from jax_dynemb._src.commands.open import open_tables
from jax_dynemb.admission import Exact, Frequency, Sketch
from meshes import mesh_of
from support import export

ROOMY = Exact(2_000), Sketch(1 << 14)
BITS = "counter_bits"
COUNTERS = pytest.mark.parametrize("counter", ROOMY, ids=["exact", "sketch"])
# Ids by how often the first lookup has them; the rule admits from 3 on.
SEEN = {5: 2, 2**40: 1, -7: 2, 9: 3}
WAITING = {key: count for key, count in SEEN.items() if count < 3}
# One occurrence more admits the ids that occurred twice, if their counts are known.
AFTER = {5, -7, 9}
FROM_ZERO = "ids without a row are counted from 0"


def tables(counter: Any, **options: Any) -> jde.Tables:
    rule = None if counter is None else Frequency(3, counter)
    return jde.Tables([jde.TableConfig("t", 4, 512, admission=rule, **options)])


def looked_up(coll: jde.Tables, state: Any = None, times: Any = SEEN) -> Any:
    ids = [key for key, count in times.items() for _ in range(count)]
    state = coll.init(0) if state is None else state
    return coll.lookup(state, {"t": jde.ids(ids)})[2]


def admitted(coll: jde.Tables, imported: Any) -> set[int]:
    """The ids with a row, once each id that was seen has come once more."""
    return set(
        export(coll, looked_up(coll, imported.state, dict.fromkeys(SEEN, 1)), "t")
    )


def counted(coll: jde.Tables, state: Any) -> dict[int, int]:
    keys, counts = coll.admission_counts(state, "t")
    return dict(zip(keys.tolist(), counts.tolist(), strict=True))


@COUNTERS
def test_an_export_keeps_them(tmp_path, counter):
    coll = tables(counter)
    jde.export.safetensors(tmp_path / "x", coll, looked_up(coll), quiet=True)
    used = looked_up(coll, times={77: 2, 5: 2})  # whose own counts give way
    for state in (None, used):
        again = jde.import_.safetensors(tmp_path / "x", coll, state)
        assert again.notes == ()
        if counter is ROOMY[0]:
            assert counted(coll, again.state) == WAITING
            keys, counts = again.counters["t"]
            assert dict(zip(keys.tolist(), counts.tolist(), strict=True)) == WAITING
        later = looked_up(coll, again.state, {**dict.fromkeys(SEEN, 1), 77: 1})
        assert set(export(coll, later, "t")) == AFTER


@COUNTERS
def test_an_export_may_leave_them_out(tmp_path, counter):
    coll, path = tables(counter), tmp_path / "x"
    jde.export.safetensors(path, coll, looked_up(coll), counters=False, quiet=True)
    again = jde.import_.safetensors(path, coll)
    assert again.notes == (f"Table 't': it was saved without counts: {FROM_ZERO}.",)
    assert admitted(coll, again) == {9} and again.counters == {}


@pytest.mark.parametrize(
    ("before", "after", "notes", "rows"),
    [
        (Exact(2_000), Sketch(1 << 14), [], AFTER),
        (Exact(2_000), Exact(600), [], AFTER),
        (Sketch(1 << 14), Sketch(1 << 12), ["its sketch has another size"], AFTER),
        (Sketch(1 << 14), Exact(2_000), ["a sketch, which has no ids"], {9}),
        (None, Sketch(1 << 14), ["saved without counts"], {9, 5, -7, 2**40}),
        (Exact(2_000), None, [], {9, 5, -7, 2**40}),
    ],
)
def test_another_counter_takes_what_it_can(tmp_path, before, after, notes, rows):
    source, target = tables(before), tables(after)
    jde.export.safetensors(tmp_path / "x", source, looked_up(source), quiet=True)
    again = jde.import_.safetensors(tmp_path / "x", target)
    assert len(again.notes) == len(notes)
    assert all(part in note for part, note in zip(notes, again.notes, strict=True))
    assert admitted(target, again) == rows


def test_a_table_that_has_grown_goes_on(tmp_path):
    small = tables(Sketch(1 << 12))
    jde.export.safetensors(tmp_path / "x", small, looked_up(small), quiet=True)
    config = small.tables["t"]
    large = jde.Tables([dataclasses.replace(config, capacity=4096)])
    again = jde.import_.safetensors(tmp_path / "x", large)
    assert admitted(large, again) == AFTER


def test_a_secret_hash_is_not_given_away(tmp_path):
    coll = tables(ROOMY[1], hash_seed=1234567)
    with pytest.warns(UserWarning, match="save a checkpoint to keep them"):
        jde.export.safetensors(tmp_path / "x", coll, looked_up(coll), quiet=True)
    again = jde.import_.safetensors(tmp_path / "x", coll)
    assert any(FROM_ZERO in note for note in again.notes)
    assert admitted(coll, again) == {9}
    plain = tables(ROOMY[1])
    jde.export.safetensors(tmp_path / "y", plain, looked_up(plain), quiet=True)
    again = jde.import_.safetensors(tmp_path / "y", coll)
    assert any("another hash_seed" in note for note in again.notes)
    assert admitted(coll, again) == {9}
    exact = tables(ROOMY[0], hash_seed=1234567)  # whose keys say all
    jde.export.safetensors(tmp_path / "z", exact, looked_up(exact), quiet=True)
    assert admitted(exact, jde.import_.safetensors(tmp_path / "z", exact)) == AFTER


@COUNTERS
def test_deltas_leave_them_as_they_were(tmp_path, counter):
    coll = tables(counter)
    state = looked_up(coll)
    jde.export.safetensors(tmp_path / "x", coll, state, quiet=True)
    state = looked_up(coll, state, {5: 1})  # gets a row
    jde.export.delta(tmp_path / "x", coll, state)
    again = jde.import_.safetensors(tmp_path / "x", coll)
    (note,) = again.notes
    assert "are those of the export: the deltas beside it (1)" in note
    assert set(export(coll, again.state, "t")) == {5, 9}
    if counter is ROOMY[0]:
        assert counted(coll, again.state) == {2**40: 1, -7: 2}
    assert admitted(coll, again) == AFTER


LAYOUTS = ["row_wise", "column_wise", "table_wise", "replicated"]


@pytest.mark.slow
@COUNTERS
def test_every_layout_writes_and_reads_them(tmp_path, counter):
    """Goes from a mesh to one device and back; the same batches follow."""
    rule = Frequency(4, counter)
    configs = [
        jde.TableConfig(f"{kind}{i}", 16, 1024, sharding=kind, admission=rule)
        for kind in LAYOUTS
        for i in range(2)
    ]
    names = [config.name for config in configs]
    here, there = jde.Tables(configs), jde.Tables(configs, mesh=mesh_of(4))
    rng = np.random.default_rng(0)
    states = {"here": here.init(3), "there": there.init(3)}
    colls = {"here": here, "there": there}

    def look_up(times: int) -> None:
        for _ in range(times):
            ids = {name: jde.ids(rng.zipf(1.3, 64) % 300) for name in names}
            for where, coll in colls.items():
                states[where] = coll.lookup(states[where], ids)[2]

    look_up(3)
    before = {name: set(export(here, states["here"], name)) for name in names}
    for where, other in (("here", "there"), ("there", "here")):
        path = tmp_path / where
        jde.export.safetensors(path, colls[where], states[where], quiet=True)
        again = jde.import_.safetensors(path, colls[other])
        assert again.notes == ()
        colls[f"by way of {where}"] = colls[other]
        states[f"by way of {where}"] = again.state
    look_up(2)
    for name in names:
        found = [set(export(coll, states[w], name)) for w, coll in colls.items()]
        assert found[0] > before[name] and all(each == found[0] for each in found)


def saved(folder: Path, coll: jde.Tables) -> Path:
    """A checkpoint, which every other format can be made from."""
    jde.checkpoint.save(folder, 1, looked_up(coll), tables=coll, wait=True)
    return folder


def converted(source: Path, kind: str) -> Path:
    target = source.parent / f"as_{kind}"
    assert command(["convert", str(source), str(target), "--to", kind]) == 0
    return target


def test_counts_by_id_go_through_every_format(tmp_path):
    pytest.importorskip("pyarrow")
    coll = tables(ROOMY[0])
    parquet = converted(saved(tmp_path / "saved", coll), "parquet")
    exported = converted(parquet, "safetensors")
    dump = converted(exported, "dynamicemb")
    for again in (
        jde.import_.safetensors(exported, coll),
        jde.import_.dynamicemb(dump, coll, optimizer=False, quiet=True),
    ):
        assert counted(coll, again.state) == WAITING
        assert not any(FROM_ZERO in note for note in again.notes)
        assert admitted(coll, again) == AFTER


def test_a_sketch_goes_where_the_format_allows(tmp_path, capsys):
    pytest.importorskip("pyarrow")
    coll = tables(ROOMY[1])
    exported = converted(saved(tmp_path / "saved", coll), "safetensors")
    assert "in a sketch" not in capsys.readouterr().err
    assert admitted(coll, jde.import_.safetensors(exported, coll)) == AFTER
    dump = converted(exported, "dynamicemb")
    assert "t: ids without a row are counted in a sketch" in capsys.readouterr().out
    again = jde.import_.dynamicemb(dump, coll, optimizer=False, quiet=True)
    assert any(f"saved without counts: {FROM_ZERO}" in note for note in again.notes)
    parquet = converted(exported, "parquet")
    assert "t: ids without a row are counted in a sketch" in capsys.readouterr().err
    assert not (parquet / "counts").exists()


def test_damaged_counts_are_found(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    coll = tables(ROOMY[0])
    folder = converted(saved(tmp_path / "saved", coll), "parquet")
    file = folder / "counts" / "t.parquet"
    sound = file.read_bytes()
    file.write_bytes(sound[:-30] + bytes(30))
    with pytest.raises(jde.DamagedFileError, match="t.parquet"):
        open_tables(folder)
    (folder / "checksums.json").unlink()  # of another writer
    for columns in (
        {"key": [1, 1], "count": [1, 1]},
        {"key": [1, 2], "count": [1, 0]},
        {"key": [1, None], "count": [1, 1]},
        {"key": [1.5], "count": [1]},
        {"key": [1]},
    ):
        parquet.write_table(pyarrow_table(columns), file)
        with pytest.raises(jde.DamagedFileError, match="t.parquet"):
            open_tables(folder)[1]["t"].admission_counts()
    file.write_bytes(sound)
    keys, counts = open_tables(folder)[1]["t"].admission_counts()
    assert dict(zip(keys.tolist(), counts.tolist(), strict=True)) == WAITING


def pyarrow_table(columns: dict[str, list]) -> Any:
    import pyarrow

    return pyarrow.table(columns)


FORGED = {
    "counts of another length": {"counts": np.ones(1, np.int64)},
    "no count": {"counts": np.zeros(3, np.int64)},
    "descending": {"counted_keys": np.array([9, 5, 1])},
    "reserved": {"counted_keys": np.array([-4, 5, 6])},
    "floats": {"counts": np.ones(3, np.float32)},
    "no words": {"sketch": np.zeros((4, 0), np.int32)},
    "no buckets": {"sketch": np.zeros((0, 4), np.int32)},
    "odd words": {"sketch": np.zeros((4, 3), np.int32)},
    "flat": {"sketch": np.zeros(16, np.int32)},
    "no bits": {"sketch": np.zeros((4, 4), np.int32), BITS: None},
    "odd bits": {"sketch": np.zeros((4, 4), np.int32), BITS: 9},
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_counts_are_refused(tmp_path, case):
    """Writes files of another program: no checksums, and whatever numbers it likes."""
    tensors = {
        "keys": np.arange(5),
        "rows": np.ones((5, 4), np.float32),
        "counted_keys": np.array([10, 11, 12]),
        "counts": np.array([1, 2, 1]),
    }
    fields = {
        "dim": 4,
        "dtype": "float32",
        "format_version": 1,
        "kind": "table",
        BITS: 8,
    }
    forged = dict(FORGED[case])
    fields |= {BITS: forged.pop(BITS, 8)}
    write_tensors(tmp_path / "sound", fields, tensors)
    coll = tables(ROOMY[0])
    again = jde.import_.safetensors(tmp_path / "sound", coll)
    assert counted(coll, again.state) == {10: 1, 11: 2, 12: 1}
    write_tensors(tmp_path / "forged", fields, tensors | forged)
    state = coll.init(0)
    with pytest.raises(jde.DamagedFileError, match=r"t\.safetensors"):
        jde.import_.safetensors(tmp_path / "forged", coll, state)
    assert coll.stats(state)["t/rows"] == 0


def write_tensors(folder: Path, fields: dict, tensors: dict) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    folder.mkdir()
    metadata = {"jax_dynemb": json.dumps(fields)}
    numpy.save_file(tensors, folder / "t.safetensors", metadata)


def test_a_store_has_none_and_says_so(tmp_path):
    coll = tables(ROOMY[0])
    state = looked_up(coll)
    with jde.stores.Log(tmp_path / "log", coll.tables["t"]) as log:
        jde.export.to_store(coll, state, {"t": log})
        again = jde.import_.from_store(coll, {"t": log})
    assert any("they are counted from 0" in note for note in again.notes)
    assert admitted(coll, again) == {9}
