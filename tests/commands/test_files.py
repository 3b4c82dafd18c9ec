# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""python -m jax_dynemb inspect and convert, from every format to every other."""

import json
import re
import xml.etree.ElementTree

import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb import __main__ as command_line
from jax_dynemb._src.commands.open import open_tables
from support import compiled, export, gradients

COLL = jde.Tables(
    [
        jde.TableConfig(
            "cat",
            dim=3,
            capacity=1024,
            optimizer=jde.optim.adam(0.25),
            score_strategy="lfu",
        ),
        jde.TableConfig("word", dim=3, capacity=256, optimizer=jde.optim.adam(0.25)),
    ]
)
FORMATS = ["checkpoint", "dynamicemb", "safetensors"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One state in every format."""
    path = tmp_path_factory.mktemp("files")
    rng, jit, state = np.random.default_rng(0), compiled(COLL), COLL.init(0)
    for step in range(3):
        # Keys reach from below zero to above 2**56, so every line of the histogram is
        # there.
        keys = rng.integers(0, 2**62, 60) >> rng.integers(0, 60, 60)
        keys[:5] *= -1
        keys[(keys < 0) & (keys >= -4)] = 77
        ids = {"cat": jde.ids(keys), "word": jde.ids(keys[:20])}
        rows, residual, state = jit.lookup(state, ids, None, None)
        grads = {n: jnp.asarray(gradients(r.shape, step)) for n, r in rows.items()}
        state = jit.apply_gradients(state, residual, grads, None)
    state = COLL.pin(state, {"cat": ids["cat"][:4]})
    tree = {"tables": state}
    jde.checkpoint.save(path / "checkpoint", 7, tree, tables=COLL, wait=True)
    jde.export.dynamicemb(path / "dynamicemb", COLL, state, quiet=True)
    jde.export.safetensors(path / "safetensors", COLL, state, quiet=True)
    return path, state


def run(capsys, *arguments) -> str:
    status = command_line.main([str(each) for each in arguments])
    output = capsys.readouterr()
    assert status == 0, output.err
    return output.out


@pytest.mark.parametrize("name", FORMATS)
def test_inspect_counts_what_is_there(files, capsys, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "200")
    path, state = files
    found = json.loads(run(capsys, "inspect", path / name, "--json"))
    assert found["bytes"] == sum(
        f.stat().st_size for f in (path / name).rglob("*") if f.is_file()
    )
    assert set(found["tables"]) == {"cat", "word"}
    for table, fields in found["tables"].items():
        rows = export(COLL, state, table)
        assert fields["rows"] == len(rows) and fields["dim"] == 3
        assert sum(count for _, count in fields["keys"]) == len(rows)
        assert sum(count for _, count in fields["scores"]) == len(rows)
        sizes = dict(fields["keys"])
        assert sizes["negative"] == sum(key < 0 for key in rows)
        assert sizes["below 2**8"] == sum(0 <= key < 256 for key in rows)
        assert sizes["2**56 and more"] == sum(key >= 2**56 for key in rows)
        if name == "checkpoint":
            assert fields["slots"] == COLL.tables[table].num_slots
            assert fields["load_factor"] == len(rows) / fields["slots"]
            assert fields["states"] == {"mu": [3], "nu": [3]}
            assert fields["counters"]["step"] == 3
    counts = dict(found["tables"]["cat"]["scores"])
    if name != "safetensors":  # no scores there
        uses = [row.score >> 32 for row in export(COLL, state, "cat").values()]
        assert counts["1"] == uses.count(1)
    text = run(capsys, "inspect", path / name)
    assert "cat: scores" in text and "word: keys" in text and "█" in text


def test_inspect_takes_a_step_or_a_file_too(files, capsys):
    path, _ = files
    text = run(capsys, "inspect", path / "checkpoint" / "7")
    assert "checkpoint of step 7" in text.replace("\n", " ")
    found = run(capsys, "inspect", path / "safetensors" / "word.safetensors", "--json")
    assert list(json.loads(found)["tables"]) == ["word"]


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("target", ["safetensors", "dynamicemb", "parquet"])
def test_convert(files, capsys, tmp_path, source, target):
    if target == "parquet":
        pytest.importorskip("pyarrow")
    path, state = files
    out = tmp_path / "out"
    run(capsys, "convert", path / source, out, "--to", target)
    for name in COLL.tables:
        want = export(COLL, state, name)
        got = parquet_rows(out, name) if target == "parquet" else stored_rows(out, name)
        assert got.keys() == want.keys()
        for key, row in got.items():
            np.testing.assert_array_equal(row, want[key].values)


def stored_rows(path, name) -> dict[int, np.ndarray]:
    rows = {}
    for chunk in open_tables(path)[1][name].chunks():
        rows |= dict(zip(chunk.keys.tolist(), chunk.rows, strict=True))
    return rows


@pytest.mark.parametrize("dtype, atol", [("float32", 0), ("int8", 1 / 50)])
def test_convert_joins_deltas(capsys, tmp_path, dtype, atol):
    """A file of codes or floats, and a delta, which has floats and names no format."""
    coll = jde.Tables([jde.TableConfig("a", dim=3, capacity=256, log_removed=64)])
    ids, path = {"a": jde.ids(np.arange(20))}, tmp_path / "in"
    rows = np.random.default_rng(0).uniform(-1, 1, (20, 3)).astype(np.float32)
    state = coll.insert(coll.init(0), ids, {"a": jnp.asarray(rows)})
    jde.export.safetensors(path, coll, state, dtype=dtype, quiet=True)
    rows[:5] = -rows[:5]
    state = coll.insert(state, {"a": ids["a"][:5]}, {"a": jnp.asarray(rows[:5])})
    state = coll.erase(state, {"a": ids["a"][19:]})
    jde.export.delta(path, coll, state)
    run(capsys, "convert", path, tmp_path / "out", "--to", "safetensors")
    found = stored_rows(tmp_path / "out", "a")
    assert list(found) == list(range(19))
    np.testing.assert_allclose(np.stack(list(found.values())), rows[:19], atol=atol)


def parquet_rows(path, name) -> dict[int, np.ndarray]:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(path / f"{name}.parquet")
    keys = table["key"].to_pylist()
    rows = np.array(table["row"].to_pylist(), np.float32)
    return dict(zip(keys, rows, strict=True))


def test_parquet_keeps_scores_and_states(files, capsys, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    path, state = files
    run(capsys, "convert", path / "checkpoint", tmp_path / "out", "--to", "parquet")
    table = parquet.read_table(tmp_path / "out" / "cat.parquet")
    assert table.schema.names == ["key", "row", "score", "pinned", "mu", "nu"]
    rows = export(COLL, state, "cat")
    (chunk,) = COLL.export(state, "cat")
    pins = dict(zip(table["key"].to_pylist(), table["pinned"].to_pylist(), strict=True))
    assert pins == dict(zip(chunk.keys.tolist(), chunk.pinned.tolist(), strict=True))
    assert sum(pins.values()) == COLL.stats(state)["cat/pinned"] == 4
    columns = zip(*(table[n].to_pylist() for n in ("key", "score", "mu")), strict=True)
    for key, score, mu in columns:
        assert score == rows[key].score
        np.testing.assert_array_equal(np.array(mu, np.float32), rows[key].state["mu"])


def test_a_checkpoint_becomes_a_dump_with_optimizer_states(files, capsys, tmp_path):
    path, state = files
    out = tmp_path / "out"
    text = run(capsys, "convert", path / "checkpoint", out, "--to", "dynamicemb")
    assert "is the smallest that loses none" in text
    again = jde.import_.dynamicemb(out, COLL)
    got, want = export(COLL, again.state, "cat"), export(COLL, state, "cat")
    for key, row in got.items():
        np.testing.assert_array_equal(row.state["nu"], want[key].state["nu"])
        assert row.score >> 32 == want[key].score >> 32
    assert COLL.stats(again.state)["cat/step"] == 3


def test_the_hash_seed_stays_in_the_checkpoint(tmp_path, capsys):
    """Inspect says that there is one; files for others do without."""
    seed = 0x123456789ABCDEF1
    config = jde.TableConfig("cat", dim=3, capacity=1024, hash_seed=seed)
    assert str(seed) not in repr(config)
    coll = jde.Tables([config])
    keys = np.random.default_rng(1).integers(0, 2**62, 300)
    ids = {"cat": jde.ids(keys)}
    _, _, state = compiled(coll).lookup(coll.init(0), ids, None, None)
    tree = {"tables": state}
    jde.checkpoint.save(tmp_path / "in", 7, tree, tables=coll, wait=True)
    shown = json.loads(run(capsys, "inspect", tmp_path / "in", "--json"))
    assert shown["tables"]["cat"]["hash"] == "seeded"
    assert str(seed) not in json.dumps(shown)
    for name in ("safetensors", "dynamicemb"):
        path = tmp_path / name
        getattr(jde.export, name)(path, coll, state, quiet=True)
        converted = tmp_path / f"converted_{name}"
        run(capsys, "convert", tmp_path / "in", converted, "--to", name)
        for file in (f for p in (path, converted) for f in p.rglob("*")):
            data = b"" if file.is_dir() else file.read_bytes()
            assert str(seed).encode() not in data and b"hash_seed" not in data
            assert seed.to_bytes(8, "little") not in data
        shown = json.loads(run(capsys, "inspect", converted, "--json"))
        assert shown["tables"]["cat"]["hash"] == ""
        assert stored_rows(converted, "cat").keys() == set(keys.tolist())
    in_checkpoint = tmp_path / "in" / "7" / "state" / "jax_dynemb.json"
    assert str(seed) in in_checkpoint.read_text()


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda path: path / "nothing", "There is no"),
        (lambda path: path, "neither a checkpoint, nor a DynamicEmb dump"),
    ],
)
def test_other_paths_get_a_sentence(tmp_path, capsys, make, sentence):
    assert command_line.main(["inspect", str(make(tmp_path))]) == 1
    assert sentence in capsys.readouterr().err


def test_an_existing_target_is_refused(files, capsys):
    path, _ = files
    arguments = ["convert", path / "checkpoint", path, "--to", "safetensors"]
    assert command_line.main([str(each) for each in arguments]) == 1
    assert "exists. Give a directory that does not" in capsys.readouterr().err


def test_parquet_is_read_too(files, capsys, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    path, state = files
    run(capsys, "convert", path / "checkpoint", tmp_path / "in", "--to", "parquet")
    fields = json.loads(run(capsys, "inspect", tmp_path / "in", "--json"))
    want = export(COLL, state, "cat")
    assert fields["kind"] == "parquet files" and set(fields["tables"]) == {
        "cat",
        "word",
    }
    found = fields["tables"]["cat"]
    assert (found["rows"], found["dim"]) == (len(want), 3)
    assert found["states"] == {"mu": [3], "nu": [3]}
    kind, tables = open_tables(tmp_path / "in" / "cat.parquet")
    assert kind == "parquet file"
    (chunk,) = tables["cat"].chunks()
    assert chunk.pinned.sum() == 4
    assert dict(zip(chunk.keys.tolist(), chunk.scores.tolist(), strict=True)) == {
        key: row.score for key, row in want.items()
    }
    for place, key in enumerate(chunk.keys.tolist()):
        for name, columns in chunk.optimizer_state.items():
            np.testing.assert_array_equal(columns[place], want[key].state[name])
    run(capsys, "convert", tmp_path / "in", tmp_path / "out", "--to", "safetensors")
    for key, row in stored_rows(tmp_path / "out", "cat").items():
        np.testing.assert_array_equal(row, want[key].values)
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array([0.5, 1.5]), 2)
    foreign = {"key": pyarrow.array([7]), "row": lists}
    pyarrow.parquet.write_table(pyarrow.table(foreign), tmp_path / "y.parquet")
    (chunk,) = open_tables(tmp_path / "y.parquet")[1]["y"].chunks()
    assert chunk.keys.tolist() == [7] and chunk.pinned is None
    foreign["pinned"] = pyarrow.array([1])
    pyarrow.parquet.write_table(pyarrow.table(foreign), tmp_path / "z.parquet")
    assert command_line.main(["inspect", str(tmp_path / "z.parquet")]) == 1
    assert "'pinned' has the type int64, not true or false" in capsys.readouterr().err
    pyarrow.parquet.write_table(pyarrow.table({"id": [1]}), tmp_path / "x.parquet")
    assert command_line.main(["inspect", str(tmp_path / "x.parquet")]) == 1
    assert "has the columns ['id']; a table has key" in capsys.readouterr().err


def test_one_table_alone_and_nothing_is_cut_off_in_a_pipe(files, capsys, monkeypatch):
    path, _ = files
    monkeypatch.delenv("COLUMNS", raising=False)
    both = run(capsys, "inspect", path / "checkpoint")
    assert "…" not in both and max(map(len, both.splitlines())) > 90
    one = run(capsys, "inspect", path / "checkpoint", "--table", "word")
    assert "word" in one and "cat" not in one.split("\n", 1)[1]
    document = json.loads(
        run(capsys, "inspect", path / "safetensors", "--json", "--table", "cat")
    )
    assert list(document["tables"]) == ["cat"]
    assert command_line.main(["inspect", str(path / "checkpoint"), "--table", "wrd"])
    assert "Did you mean 'word'?" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["checkpoint", "dynamicemb", "safetensors"])
def test_a_page_shows_what_is_there_and_loads_nothing(files, capsys, tmp_path, source):
    path, _ = files
    run(capsys, "inspect", path / source, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert not re.search(r"src=|href=|url\(|<script|@import|https?:", page)
    body = re.sub("<!doctype html>|<meta[^>]*>", "", page)
    xml.etree.ElementTree.fromstring(body)  # every tag is closed
    _, tables = open_tables(path / source)
    for name, table in tables.items():
        section = page.split(f"<h2>{name}</h2>")[1].split("<h2>")[0]
        rows = np.concatenate([c.rows.astype(np.float32) for c in table.chunks()])
        keys = np.concatenate([c.keys for c in table.chunks()])
        norms = np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1))
        assert f"<td>{len(keys)}" in section
        longest = section.split("ids of longest row")[1]
        assert f"<td>{keys[norms.argmax()]}</td>" in longest.split("</tr>")[1]
        # The bars of a histogram hold every row, or every bucket.
        for figure in section.split("<figure>")[1:]:
            counts = re.findall(r": ([\d,]+)</title>", figure)
            total = sum(int(c.replace(",", "")) for c in counts)
            buckets = "Rows in a bucket" in figure
            assert total == (table.schema.num_buckets if buckets else len(keys))
        assert ("Rows in a bucket" in section) == (table.schema.num_buckets > 0)
        assert ("Uses of a row" in section) == (table.schema.score_strategy == "lfu")


def test_a_page_of_an_empty_table(capsys, tmp_path):
    jde.export.safetensors(tmp_path / "empty", COLL, COLL.init(0), quiet=True)
    run(capsys, "inspect", tmp_path / "empty", "--html", tmp_path / "page.html")
    assert "<h2>word</h2>" in (tmp_path / "page.html").read_text()
