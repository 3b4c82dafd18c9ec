# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Files made to harm: huge numbers, names that lead outside, chunks that are gone."""

import dataclasses
import json
import pickle
import resource
import shutil
import sys
import zlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb.__main__ import main as command
from jax_dynemb._src.commands.open import open_tables

sys.path.insert(0, str(Path(__file__).resolve().parent))

import corpus  # noqa: E402

MOST_BYTES = 96 << 20


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("sound")
    corpus.write(path)
    return path


@pytest.fixture
def files(sound, tmp_path) -> Path:
    shutil.copytree(sound, tmp_path / "files")
    return tmp_path / "files"


def refused(function, *arguments, path: Path, **options) -> str:
    """Calls; the error names the file and costs little memory. Returns its sentence."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(jde.DamagedFileError) as raised:
        function(*arguments, **options)
    more = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert more < MOST_BYTES
    assert raised.value.path == str(path) and str(path) in str(raised.value)
    return str(raised.value)


def test_the_exception():
    error = jde.DamagedFileError(Path("/x/y"), "it is short", "Copy it.")
    assert isinstance(error, ValueError)
    assert str(error) == "/x/y is damaged: it is short. Copy it."
    again = pickle.loads(pickle.dumps(error))  # from a worker of a data loader
    assert (str(again), again.path, again.fix) == (str(error), "/x/y", "Copy it.")


def write_header(path: Path, header: bytes, data: bytes = b"") -> Path:
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    return path


BOMBS = {
    "length": b"",
    "shape": b'{"keys":{"dtype":"I64","shape":[4611686018427387904],'
    b'"data_offsets":[0,8]}}',
    "axes": b'{"keys":{"dtype":"I64","shape":[' + b"9" * 18 + b",2" * 99_999 + b"]}}",
    "negative": b'{"keys":{"dtype":"I64","shape":[-1,-1],"data_offsets":[0,8]}}',
    "offsets": b'{"keys":{"dtype":"I64","shape":[1],"data_offsets":[8,0]}}',
    "far": b'{"keys":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}}',
    "deep": b'{"keys":' + b"[" * 1_000_000,
    "digits": b'{"keys":' + b"1" * 1_000_000 + b"}",
    "float": b'{"keys":{"dtype":"I64","shape":[1e300],"data_offsets":[0,8]}}',
    "bool": b'{"keys":{"dtype":"I64","shape":[true],"data_offsets":[0,8]}}',
    "twice": b'{"keys":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},"keys":{}}',
    "utf-8": b'{"\xff\xfe":{}}',
    "overlap": b'{"keys":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},'
    b'"rows":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_numbers_in_a_header_are_bounded_by_the_file(tmp_path, bomb):
    path = write_header(tmp_path / "cat.safetensors", BOMBS[bomb], bytes(8))
    if bomb == "length":
        path.write_bytes((2**62).to_bytes(8, "little") + b"{}")
    refused(jde.import_.safetensors, tmp_path, corpus.COLL, tables=["cat"], path=path)
    refused(open_tables, tmp_path, path=path)


def without_checksums(files: Path, **changed) -> Path:
    """Copies a file with other fields in its header, which no checksum covers."""
    path = files / "export_float32" / "cat.safetensors"
    data = path.read_bytes()
    first = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:first])
    fields = json.loads(header["__metadata__"]["jax_dynemb"])
    del fields["checksums"], header["__metadata__"]["jax_dynemb_crc32"]
    header["__metadata__"]["jax_dynemb"] = json.dumps(fields | changed)
    folder = files / "other"
    folder.mkdir()
    return write_header(folder / path.name, json.dumps(header).encode(), data[first:])


def test_a_table_of_another_size_than_it_says(files):
    """The field "dim", which sizes are made from."""
    path = without_checksums(files, dim=2**30)
    assert "'rows' is F32" in refused(open_tables, path.parent, path=path)


@pytest.mark.parametrize("identity", [7, {}, {"run": "0"}, [1], "x"])
def test_an_identity_that_is_none(files, identity):
    path = without_checksums(files, identity=identity)
    arguments = (path.parent, corpus.COLL, corpus.states()[3])
    assert "no identity" in refused(jde.export.delta, *arguments, path=path)


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "a/../../x", "", "a//b"])
def test_names_that_lead_outside(files, name):
    path = files / "dump" / "checksums.json"
    body = json.loads(path.read_text())
    del body["crc32"]
    body["files"][name] = {"bytes": 4, "crc32": [1]}
    own = zlib.crc32(json.dumps(body, sort_keys=True).encode())
    path.write_text(json.dumps(body | {"crc32": own}))
    assert "outside" in refused(open_tables, files / "dump", path=path)


def test_a_link_to_outside(files, tmp_path):
    item = files / "checkpoint" / "4" / "state"
    place = item / "dense"
    shutil.move(place, tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    sentence = refused(open_tables, files / "checkpoint", path=place)
    assert "link to outside" in sentence


def test_a_table_whose_name_is_a_path(files, tmp_path):
    """Schemas name the files that convert writes."""
    item = files / "checkpoint" / "4" / "state"
    path = item / "jax_dynemb.json"
    fields = json.loads(path.read_text())
    fields["tables"]["tables/cat"]["name"] = "../../outside"
    path.write_text(json.dumps(fields))
    arguments = (files / "checkpoint",)
    refused(open_tables, *arguments, path=path)
    sentence = refused(open_tables, *arguments, path=path, verify=False)
    assert "'../../outside'" in sentence
    assert not (tmp_path / "outside.safetensors").exists()


@pytest.mark.parametrize("verify", [True, False])
def test_a_missing_chunk_is_no_zeros(files, capsys, tmp_path, verify):
    chunk = files / "checkpoint" / "4" / "state" / "tables.cat.values" / "0.0"
    chunk.unlink()
    damaged = chunk if verify else chunk.parent
    refused(open_tables, files / "checkpoint", verify=verify, path=damaged)
    arguments = ["convert", str(files / "checkpoint"), str(tmp_path / "out")]
    switch = [] if verify else ["--no-verify"]
    assert command([*arguments, "--to", "safetensors", *switch]) == 1
    assert str(damaged) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    tree = {"tables": corpus.COLL.init(0), "dense": jnp.zeros(6), "epoch": 0}
    given = (files / "checkpoint", tree)
    options = {"tables": corpus.COLL, "verify": verify}
    refused(jde.checkpoint.restore, *given, **options, path=damaged)
    corpus.check_alive(corpus.COLL, tree["tables"])


def test_steps_that_changed_places(files):
    path = files / "checkpoint"
    (path / "3").rename(path / "spare")
    (path / "4").rename(path / "3")
    (path / "spare").rename(path / "4")
    damaged = path / "4" / "state" / "jax_dynemb.json"
    assert "saved as step 3" in refused(open_tables, path, path=damaged)


def test_the_newest_step_without_its_checksums(files):
    """It was complete, so an older one in its place would be a silent difference."""
    path = files / "checkpoint"
    lost = path / "4" / "state" / "checksums.json"
    lost.unlink()
    tree = {"tables": corpus.COLL.init(0), "dense": jnp.zeros(6), "epoch": 0}
    options = {"tables": corpus.COLL}
    refused(jde.checkpoint.restore, path, tree, **options, path=lost)
    assert jde.checkpoint.restore(path, tree, step=3, **options).step == 3


@pytest.mark.parametrize("lost", [1, 2])
def test_every_delta_must_be_there(files, lost):
    folder = files / "export_float32"
    (folder / f"cat.delta-{lost:06d}.safetensors").unlink()
    named = {1: "cat.delta-000002.safetensors", 2: "cat.manifest.json"}[lost]
    arguments = (folder, corpus.COLL)
    refused(jde.import_.safetensors, *arguments, path=folder / named)
    refused(jde.export.delta, *arguments, corpus.states()[3], path=folder / named)
    refused(open_tables, folder, path=folder / named)


def test_deltas_of_another_export_are_refused(files):
    """Deltas of the same steps of the same table would fit by since and until."""
    folder, other = files / "export_float32", files / "export_int8"
    for number in (1, 2):
        name = f"cat.delta-{number:06d}.safetensors"
        shutil.copy(other / name, folder / name)
    sentence = refused(
        open_tables, folder, path=folder / "cat.delta-000001.safetensors"
    )
    assert "belongs to another export" in sentence


def test_a_delta_whose_writer_was_killed_before_the_manifest(files, sound):
    """It continues the chain, so it counts."""
    folder = files / "export_float32"
    manifest = folder / "cat.manifest.json"
    before = manifest.read_bytes()
    jde.export.delta(folder, corpus.COLL, corpus.states()[3])
    want = corpus.imported(jde.import_.safetensors, folder)
    manifest.write_bytes(before)
    got = corpus.imported(jde.import_.safetensors, folder)
    assert corpus.digest(got) == corpus.digest(want)


def dumped(tmp_path, keys, values=None) -> Path:
    """A dump as another program writes it."""
    keys = np.asarray(keys, np.int64)
    values = np.ones((len(keys), 4), np.float32) if values is None else values
    keys.tofile(tmp_path / "cat_emb_keys.rank_0.world_size_1")
    np.asarray(values).tofile(tmp_path / "cat_emb_values.rank_0.world_size_1")
    return tmp_path


def test_keys_of_a_dump_are_distinct(tmp_path):
    path = dumped(tmp_path, [7, 8, 9, 7]) / "cat_emb_keys.rank_0.world_size_1"
    sentence = refused(open_tables, tmp_path, path=path)
    assert "the key 7 comes twice" in sentence
    arguments = (tmp_path, corpus.COLL)
    refused(jde.import_.dynamicemb, *arguments, tables=["cat"], path=path)


def test_a_dump_of_another_program_is_read(tmp_path):
    folder = dumped(tmp_path, [7, 8, 9])
    (tables,) = open_tables(folder)[1].values()
    assert tables.rows == 3
    new = jde.import_.dynamicemb(folder, corpus.COLL, tables=["cat"], quiet=True)
    assert corpus.COLL.stats(new.state)["cat/rows"] == 3


@pytest.mark.parametrize("ranks", ["1000000000", "-1", "٣"])
def test_ranks_in_names_are_bounded(tmp_path, ranks):
    path = dumped(tmp_path, [7])
    name = f"cat_emb_keys.rank_0.world_size_{ranks}"
    (path / "cat_emb_keys.rank_0.world_size_1").rename(path / name)
    with pytest.raises(ValueError, match="has no files of table 'cat'"):
        jde.import_.dynamicemb(path, corpus.COLL, tables=["cat"])


IMPORTS = {
    "safetensors": (jde.import_.safetensors, "export_float32"),
    "dynamicemb": (jde.import_.dynamicemb, "dump"),
}


@pytest.mark.parametrize("name", IMPORTS)
def test_a_failed_import_leaves_the_state_alive(files, name):
    """Damage in the last byte of the last file of the last table."""
    function, folder = IMPORTS[name]
    state = corpus.states()[0]
    want = corpus.digest(corpus.exported(corpus.COLL, state))
    for path in sorted((files / folder).iterdir()):
        sound = path.read_bytes()
        path.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
        with pytest.raises(jde.DamagedFileError) as raised:
            function(files / folder, corpus.COLL, state, quiet=True)
        assert raised.value.path == str(path)
        assert corpus.digest(corpus.exported(corpus.COLL, state)) == want
        path.write_bytes(sound)
    narrow = [dataclasses.replace(t, dim=3) for t in corpus.COLL.tables.values()]
    other = jde.Tables(narrow)
    state = other.init(0)
    with pytest.raises(ValueError, match="dim"):
        function(files / folder, other, state, quiet=True)
    corpus.check_alive(other, state)


def test_a_program_is_refused_before_it_is_parsed(files):
    path = files / "program" / "program.bin"
    data = path.read_bytes()
    for cut in (0, 1, 30, 40, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:cut])
        refused(jde.export.load_program, path, path=path)
    with pytest.raises(jde.DamagedFileError, match="given as bytes"):
        jde.export.load_program(data[:-1] + b"x")
    numbers = data.partition(b"program 1\n")[2]
    size = int.from_bytes(numbers[:8], "little")
    path.write_bytes(numbers[16 : 16 + size])  # as earlier versions wrote it
    assert corpus.called(path.parent).shape == (8, 4)


def test_a_device_is_no_file(files):
    path = files / "export_float32" / "cat.delta-000001.safetensors"
    path.unlink()
    path.symlink_to("/dev/zero")
    assert "no regular file" in refused(open_tables, path.parent, path=path)


def test_parquet_of_other_programs(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = pyarrow.array([[1.0, 2.0]] * 3, pyarrow.list_(pyarrow.float32(), 2))
    path = tmp_path / "cat.parquet"
    good = pyarrow.table({"key": [1, 2, 3], "row": rows})
    parquet.write_table(good, path)
    assert open_tables(path)[1]["cat"].rows == 3
    for columns, problem in (
        ({"key": [1, 2, 1], "row": rows}, "the key 1 comes twice"),
        ({"key": [1, None, 3], "row": rows}, "values are missing"),
        ({"key": ["1", "2", "3"], "row": rows}, "not integers"),
        ({"key": [1, 2, 3], "row": rows, "score": [1.5, 2.0, 3.0]}, "not integers"),
        ({"key": [1, 2, 3], "row": rows, "mu": ["a", "b", "c"]}, "not floats"),
    ):
        parquet.write_table(pyarrow.table(columns), path)
        assert problem in refused(open_tables, path, path=path)


def test_two_namesakes_do_not_share_a_file(tmp_path, capsys):
    """Tables of two models in one checkpoint may have one name."""
    state = corpus.states()[0]
    coll = jde.Tables([corpus.COLL.tables["cat"]])
    cat = {"cat": jax.tree.map(jnp.copy, state["cat"])}
    other = coll.lookup(coll.init(9), {"cat": jde.ids([1, 2, 3])})[2]
    tree = {"one": cat, "two": other}
    jde.checkpoint.save(tmp_path / "in", 1, tree, tables=coll, wait=True)
    out = tmp_path / "out"
    assert command(["convert", str(tmp_path / "in"), str(out), "--to=safetensors"]) == 0
    tables = open_tables(out)[1]
    assert set(tables) == {"one.cat", "two.cat"}
    assert tables["two.cat"].rows == 3 and tables["one.cat"].rows > 3
    capsys.readouterr()
