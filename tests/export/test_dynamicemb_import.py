# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""DynamicEmb's dumps: damaged ones, those of other writers, and of other layouts."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from export.dynamicemb_dumps import (
    NOW,
    states_of,
    tables,
    trained,
    written,
)
from support import advised_capacity, export


@pytest.fixture
def dump(tmp_path):
    coll = tables("adam")
    written(tmp_path / "dump", coll, trained(coll), ranks=2)
    return tmp_path / "dump", coll


def test_damaged_dumps_are_refused(dump):
    path, coll = dump
    values = path / "cat_emb_values.rank_1.world_size_2"
    whole = values.read_bytes()
    values.write_bytes(whole[:-1])
    with pytest.raises(jde.DamagedFileError, match="rank_1.world_size_2 is damaged"):
        jde.import_.dynamicemb(path, coll)
    values.unlink()
    with pytest.raises(jde.DamagedFileError, match="size_2 is damaged: it is missing"):
        jde.import_.dynamicemb(path, coll)
    (path / "checksums.json").unlink()  # as of a dump of DynamicEmb
    values.write_bytes(whole[:-1])
    with pytest.raises(jde.DamagedFileError, match="not a whole number of rows"):
        jde.import_.dynamicemb(path, coll)
    values.unlink()
    with pytest.raises(ValueError, match="emb_values files .* not those of one dump"):
        jde.import_.dynamicemb(path, coll)


def test_stale_files_are_refused(dump):
    path, coll = dump
    (path / "cat_emb_keys.rank_0.world_size_1").write_bytes(b"")
    with pytest.raises(jde.DamagedFileError, match="checksums.json does not name it"):
        jde.import_.dynamicemb(path, coll)
    (path / "checksums.json").unlink()
    with pytest.raises(ValueError, match="not those of one dump"):
        jde.import_.dynamicemb(path, coll)


def test_other_tables_are_refused(dump):
    path, coll = dump
    config = coll.tables["cat"]
    with pytest.raises(ValueError, match="dumped with dim 3, but its config has dim 4"):
        jde.import_.dynamicemb(path, jde.Tables([dataclasses.replace(config, dim=4)]))
    other = dataclasses.replace(config, name="dog", feature_names=())
    with pytest.raises(ValueError, match=r"no files of table 'dog'.*\['cat'\]"):
        jde.import_.dynamicemb(path, jde.Tables([other]))


def test_what_is_not_taken_over_is_said(dump):
    path, coll = dump
    config = dataclasses.replace(
        coll.tables["cat"], optimizer=jde.optim.adam(0.5), score_strategy="timestamp"
    )
    notes = " ".join(jde.import_.dynamicemb(path, jde.Tables([config])).notes)
    assert "lr was 0.25 in the dump; the config's learning_rate=0.5 is used" in notes
    assert "beta1 was 0.5" in notes
    assert "rows are scored as new" in notes
    config = dataclasses.replace(config, optimizer=jde.optim.adagrad(0.5))
    notes = " ".join(jde.import_.dynamicemb(path, jde.Tables([config])).notes)
    assert "no states of exact_adagrad in the dump (it has adam)" in notes
    small = dataclasses.replace(coll.tables["cat"], capacity=256)
    with pytest.raises(ValueError, match="of 600 rows would find no place") as raised:
        jde.import_.dynamicemb(path, jde.Tables([small]))
    with pytest.warns(UserWarning, match="of 600 rows found no place"):
        dropped = jde.import_.dynamicemb(path, jde.Tables([small]), allow_drop=True)
    assert "of 600 rows found no place" in " ".join(dropped.notes)
    large = dataclasses.replace(small, capacity=advised_capacity(raised.value))
    tables = jde.Tables([large])
    state = jde.import_.dynamicemb(path, tables).state
    assert tables.stats(state)["cat/rows"] == 600


def test_dumps_of_other_writers(tmp_path):
    """No scores, no JSON, reserved keys: what third parties write."""
    keys = np.array([7, -1, -4, 9, -5], "<i8")
    keys.tofile(tmp_path / "cat_emb_keys.rank_0.world_size_1")
    values = np.arange(15, dtype="<f4").reshape(5, 3)
    values.tofile(tmp_path / "cat_emb_values.rank_0.world_size_1")
    coll = tables("sgd")
    again = jde.import_.dynamicemb(tmp_path, coll)
    rows = export(coll, again.state, "cat")
    assert set(rows) == {7, 9, -5}
    np.testing.assert_array_equal(rows[9].values, values[3])
    assert "2 keys from -4 to -1 were left out" in " ".join(again.notes)
    assert "the dump has no scores: rows are scored as new" in " ".join(again.notes)


def test_an_import_replaces_what_was_there(dump):
    path, coll = dump
    ids = {"cat": jde.ids(np.array([123]))}
    _, _, state = coll.lookup(coll.init(5), ids)
    again = jde.import_.dynamicemb(path, coll, state).state
    assert 123 not in export(coll, again, "cat")
    assert coll.stats(again)["cat/rows"] == 600


@pytest.mark.parametrize("order", [("timestamp", "lfu"), ("lfu", "timestamp")])
def test_compound_scores_have_two_columns(tmp_path, order):
    coll = tables("sgd", order)
    assert coll.tables["cat"].score_strategy is jde.ScoreStrategy.LFU
    state = trained(coll)
    written(tmp_path / "dump", coll, state, compound={"cat": order})
    words = np.fromfile(
        tmp_path / "dump" / "cat_emb_scores.rank_0.world_size_1", np.int64
    )
    keys = np.fromfile(tmp_path / "dump" / "cat_emb_keys.rank_0.world_size_1", np.int64)
    columns = dict(zip(order, words.reshape(-1, 2).T, strict=True))
    rows = export(coll, state, "cat")
    assert columns["lfu"].tolist() == [rows[k].score >> 32 for k in keys.tolist()]
    last = np.array([rows[k].score & 0xFFFFFFFF for k in keys.tolist()])
    np.testing.assert_array_equal(columns["timestamp"], NOW - 3 + last)  # of 3 lookups
    with pytest.raises(ValueError, match="combines only timestamp and lfu"):
        written(tmp_path / "other", coll, state, compound={"cat": ("lfu", "step")})


def as_continuous(path, ranks: int, size: int) -> None:
    """Turns a dump of one rank into what 'continuous' ranks write (Python integers)."""
    kinds = {p.name.split(".")[0]: p for p in path.iterdir() if ".rank_0" in p.name}
    block = -(-size // ranks)
    unsigned = [int(k) % 2**64 for k in np.fromfile(kinds["cat_emb_keys"], "<i8")]
    owner = [k // block if k < block * ranks else k % ranks for k in unsigned]
    local = [k % block if k < block * ranks else k // ranks for k in unsigned]
    for kind, file in kinds.items():
        rows = np.fromfile(file, "<i4").reshape(len(local), -1)
        if kind == "cat_emb_keys":
            rows = np.array(local, "<u8").view("<i4").reshape(len(local), -1)
        for rank in range(ranks):
            mine = rows[np.array(owner) == rank]
            mine.tofile(path / f"{kind}.rank_{rank}.world_size_{ranks}")
        file.unlink()
    (path / "checksums.json").unlink()
    file = path / "cat_opt_args.json"
    fields = json.loads(file.read_text()) | {"dist_type": "continuous"}
    file.write_text(json.dumps(fields))


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_continuous_dump_of_several_ranks_gives_its_keys_back(tmp_path, ranks):
    coll, size = tables("adam"), 301
    rng, keys = np.random.default_rng(1), [0, 2**40, 2**62, -5, -(2**63)]
    near = np.arange(290, 330)  # around the end of the blocks
    some = rng.integers(2**62, size=50)
    keys = np.concatenate([keys, np.arange(40, 220), near, some])
    _, residual, state = coll.lookup(coll.init(0), {"cat": jde.ids(keys)})
    ones = {"cat": jnp.ones((len(keys), 3))}
    state = coll.apply_gradients(state, residual, ones)
    written(tmp_path / "dump", coll, state)
    as_continuous(tmp_path / "dump", ranks, size)
    with pytest.raises(ValueError, match=r"Pass num_embeddings=\{'cat': \.\.\.\}"):
        jde.import_.dynamicemb(tmp_path / "dump", coll, now=NOW)
    again = jde.import_.dynamicemb(
        tmp_path / "dump", coll, now=NOW, num_embeddings={"cat": size}
    )
    assert again.notes == ()
    rows, back = export(coll, state, "cat"), export(coll, again.state, "cat")
    assert rows.keys() == back.keys() and len(rows) == len(set(keys.tolist()))
    for key, row in rows.items():
        np.testing.assert_array_equal(row.values, back[key].values)
        np.testing.assert_array_equal(states_of(row), states_of(back[key]))
