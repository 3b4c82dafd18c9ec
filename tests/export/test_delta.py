# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Delta files: a reader that applies them in order holds what the table holds."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

import jax_dynemb as jde
from jax_dynemb._src.files.safetensors.series import Series
from keys import keys_of_bucket
from support import compiled, export, gradients

CROWD = np.array(keys_of_bucket(0, 2, 250) + keys_of_bucket(1, 2, 250), np.int64)
COLL = jde.Tables(
    [
        jde.TableConfig("cat", dim=3, capacity=256, optimizer=jde.optim.sgd(0.5)),
        jde.TableConfig("still", dim=2, capacity=256),
    ]
)


def trained(state, seed: int):
    """More keys than fit, so some leave."""
    keys = np.random.default_rng(seed).choice(CROWD, 120)
    jit = compiled(COLL)
    rows, residual, state = jit.lookup(state, {"cat": jde.ids(keys)}, None, None)
    d_rows = {"cat": gradients(rows["cat"].shape, seed)}
    return jit.apply_gradients(state, residual, d_rows, None)


def loaded(path: Path) -> tuple[dict[str, np.ndarray], dict]:
    with safe_open(path, framework="numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, json.loads(file.metadata()["jax_dynemb"])


def read(directory: Path, table: str) -> dict[int, np.ndarray]:
    """Reads what a reader holds: the base, then every delta in order."""
    tensors, metadata = loaded(directory / f"{table}.safetensors")
    rows = dict(zip(tensors["keys"].tolist(), tensors["rows"], strict=True))
    until = metadata["until"]
    for path in sorted(directory.glob(f"{table}.delta-*.safetensors")):
        tensors, metadata = loaded(path)
        assert metadata["format_version"] == 1 and metadata["kind"] == "delta"
        assert metadata["table"] == table and metadata["since"] == until
        assert tensors["keys"].dtype == tensors["removed"].dtype == np.int64
        assert (np.diff(tensors["keys"]) > 0).all()
        assert (np.diff(tensors["removed"]) > 0).all()
        assert set(tensors["removed"].tolist()) <= rows.keys()
        for key in tensors["removed"].tolist():
            del rows[key]
        rows |= dict(zip(tensors["keys"].tolist(), tensors["rows"], strict=True))
        until = metadata["until"]
    return rows


def assert_reads(directory: Path, state) -> None:
    got, want = read(directory, "cat"), export(COLL, state, "cat")
    assert got.keys() == want.keys()
    for key, row in got.items():
        np.testing.assert_array_equal(row, want[key].values)


def test_a_reader_follows(tmp_path):
    path = tmp_path / "serving"
    state = trained(COLL.init(0), 0)
    jde.export.safetensors(path, COLL, state, quiet=True)
    assert_reads(path, state)
    for seed in range(1, 5):
        state = trained(state, seed)
        if seed == 2:
            state = COLL.erase(state, {"cat": jde.ids(CROWD[:50])})
        files = jde.export.delta(path, COLL, state)
        assert files["cat"] == path / f"cat.delta-{seed:06d}.safetensors"
        assert files["still"] is None  # nothing changed there
        assert_reads(path, state)
    assert COLL.stats(state)["cat/evicted"] > 0
    # Only what changed: the last file has the rows of one batch.
    assert len(loaded(files["cat"])[0]["keys"]) < 120
    assert not [p for p in path.iterdir() if "tmp" in p.name]
    assert jde.export.delta(path, COLL, state) == {"cat": None, "still": None}


def test_the_files_can_be_read_as_one_table(tmp_path):
    from jax_dynemb._src.commands.open import open_tables

    path = tmp_path / "serving"
    state = trained(COLL.init(0), 0)
    jde.export.safetensors(path, COLL, state, quiet=True)
    for seed in range(1, 4):
        state = trained(state, seed)
        jde.export.delta(path, COLL, state)
    kind, tables = open_tables(path)
    assert kind == "safetensors export" and set(tables) == {"cat", "still"}
    chunks = list(tables["cat"].chunks())
    keys = np.concatenate([chunk.keys for chunk in chunks])
    rows = np.concatenate([chunk.rows for chunk in chunks])
    want = export(COLL, state, "cat")
    assert sorted(keys.tolist()) == sorted(want)
    assert tables["cat"].rows == len(want)
    for key, row in zip(keys.tolist(), rows, strict=True):
        np.testing.assert_array_equal(row, want[key].values)


def test_a_broken_chain_is_named(tmp_path):
    path = tmp_path / "serving"
    path.mkdir()
    with pytest.raises(ValueError, match="has no export of .*jde.export.safetensors"):
        jde.export.delta(path, COLL, COLL.init(0))
    path.rmdir()
    state = trained(COLL.init(0), 0)
    jde.export.safetensors(path, COLL, state, quiet=True)
    with pytest.raises(ValueError, match="of another run.*Export the tables again"):
        jde.export.delta(path, COLL, COLL.init(0))
    for seed in range(1, 4):
        state = trained(state, seed)
        jde.export.delta(path, COLL, state)
    (path / "cat.delta-000002.safetensors").unlink()
    with pytest.raises(ValueError, match="delta-000003.* a delta is missing"):
        jde.export.delta(path, COLL, state)


def test_other_files_are_refused(tmp_path):
    from safetensors.numpy import save_file

    save_file({"keys": np.zeros(1, np.int64)}, tmp_path / "cat.safetensors")
    with pytest.raises(ValueError, match="was not written by jax_dynemb"):
        jde.export.delta(tmp_path, COLL, COLL.init(0))
    (tmp_path / "cat.safetensors").write_bytes(b"nonsense" * 9)
    with pytest.raises(ValueError, match="is damaged: it is no safetensors file"):
        jde.export.delta(tmp_path, COLL, COLL.init(0))


def test_a_log_says_what_left(tmp_path, monkeypatch):
    """The same rows for readers, without a look at the keys of earlier files."""
    table = jde.TableConfig(
        "cat", dim=3, capacity=256, optimizer=jde.optim.sgd(0.5), log_removed=1000
    )
    coll, path = jde.Tables([table]), tmp_path / "serving"
    jit = compiled(coll)
    compared = []
    keys_of = Series.keys
    monkeypatch.setattr(
        Series, "keys", lambda self: compared.append(1) or keys_of(self)
    )
    state = coll.init(0)
    for seed in range(4):
        ids = np.random.default_rng(seed).choice(CROWD, 120)
        _, _, state = jit.lookup(state, {"cat": jde.ids(ids)}, None, None)
        state = coll.erase(state, {"cat": jde.ids(ids[:10])})
        if seed == 0:
            jde.export.safetensors(path, coll, state, quiet=True)
        else:
            jde.export.delta(path, coll, state)
        imported = jde.import_.safetensors(path, coll, quiet=True)
        got, want = export(coll, imported.state, "cat"), export(coll, state, "cat")
        assert got.keys() == want.keys()
    assert coll.stats(state)["cat/evicted"] > 0
    assert compared == [1] * 3  # by the reader only, to count its rows
    _, fields = loaded(path / "cat.delta-000003.safetensors")
    assert fields["head"] == list(coll.take_removed(state, "cat")[1])
    # A log that does not reach back: keys are compared again.
    for _ in range(6):
        state = coll.erase(state, {"cat": jde.ids(CROWD)})
        _, _, state = jit.lookup(state, {"cat": jde.ids(CROWD)}, None, None)
    jde.export.delta(path, coll, state)
    imported = jde.import_.safetensors(path, coll, quiet=True)
    want = export(coll, state, "cat")
    assert export(coll, imported.state, "cat").keys() == want.keys()
    assert len(compared) == 5  # by the writer too
