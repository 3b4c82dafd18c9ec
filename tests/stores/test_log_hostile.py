# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Logs whose files were altered, cut, exchanged or removed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import jax_dynemb as jde
from stores.conftest import random_rows, table_config

KEYS = np.arange(300) * 7


def make_log(path: Path, seed: int = 0) -> np.ndarray:
    """A log of several segments; returns its rows."""
    rng = np.random.default_rng(seed)
    with jde.stores.Log(path, table_config(), segment_megabytes=1 / 128) as log:
        rows = random_rows(rng, len(KEYS), log)
        log.put(KEYS, rows)
        log.put(KEYS[::4], rows[::4])
        log.commit("one")
    return rows


def read_all(path: Path) -> np.ndarray:
    """Everything that a program may read of a log."""
    with jde.stores.Log(path, read_only=True) as log:
        log.verify()
        found, packed = log.get(KEYS)
        assert found.all()
        return packed


def files_of(path: Path) -> list[Path]:
    return sorted(
        each for each in path.rglob("*") if each.stat().st_size > 0 and each.is_file()
    )


def test_a_flipped_byte_anywhere_is_named(tmp_path):
    """Or it lies where nothing is read: in rows that were put again, and says so."""
    rows = make_log(tmp_path)
    rng = np.random.default_rng(1)
    named, silent = 0, 0
    for path in files_of(tmp_path):
        whole = path.read_bytes()
        places = {0, 8, 20, 40, len(whole) - 1, len(whole) - 20, len(whole) // 2}
        places |= set(rng.integers(0, len(whole), 40).tolist())
        for place in places:
            damaged = bytearray(whole)
            damaged[place] ^= 1 << int(rng.integers(8))
            path.write_bytes(damaged)
            try:
                np.testing.assert_array_equal(read_all(tmp_path), rows)
                silent += 1
                assert path.suffix == ".segment" and place > 4096
            except jde.DamagedFileError as error:
                assert Path(error.path) == path, (place, str(error))
                named += 1
        path.write_bytes(whole)
    np.testing.assert_array_equal(read_all(tmp_path), rows)
    assert named > 3 * silent and named > 200


def test_a_damaged_row_is_named_with_its_bytes(tmp_path):
    make_log(tmp_path)
    path = tmp_path / "segments" / "0000000001.segment"
    data = bytearray(path.read_bytes())
    record = jde.stores.Layout.of(table_config()).row_bytes + 12
    first, last = 4096 + 51 * record, 4096 + 52 * record - 1  # of the 52nd key
    data[first + 11] ^= 64
    path.write_bytes(data)
    with jde.stores.Log(tmp_path) as log:
        assert log.get(np.delete(KEYS, 51))[0].all()
        with pytest.raises(jde.DamagedFileError, match="the checksum of a record") as e:
            log.get(KEYS)
        assert e.value.path == str(path)
        assert f"bytes {first} to {last}" in str(e.value)
        with pytest.raises(jde.DamagedFileError, match=f"bytes {first} to {last}"):
            log.verify()


def test_cut_files_are_named(tmp_path):
    rows = make_log(tmp_path)
    for path in files_of(tmp_path):
        whole = path.read_bytes()
        for size in {0, 1, 30, 4095, 4096, len(whole) // 2, len(whole) - 1} - {
            len(whole)
        }:
            if size > len(whole):
                continue
            path.write_bytes(whole[:size])
            with pytest.raises(jde.DamagedFileError) as error:
                read_all(tmp_path)
            assert error.value.path == str(path)
        path.write_bytes(whole + b"x")
        with pytest.raises(jde.DamagedFileError):
            read_all(tmp_path)
        path.write_bytes(whole)
    np.testing.assert_array_equal(read_all(tmp_path), rows)


def test_missing_files_are_named(tmp_path):
    make_log(tmp_path)
    for path in files_of(tmp_path):
        if path.suffix == ".json":
            continue
        aside = path.rename(tmp_path / "aside")
        for read_only in (True, False):
            with pytest.raises(jde.DamagedFileError, match="it is missing") as error:
                jde.stores.Log(tmp_path, read_only=read_only)
            assert error.value.path == str(path)
        aside.rename(path)
    read_all(tmp_path)


def test_files_of_another_log_are_refused(tmp_path):
    rows = make_log(tmp_path / "a")
    make_log(tmp_path / "b", seed=5)
    for name in ("0000000001.segment", "0000000002.segment"):
        path = tmp_path / "a" / "segments" / name
        whole = path.read_bytes()
        shutil.copy(tmp_path / "b" / "segments" / name, path)
        with pytest.raises(jde.DamagedFileError, match="segment of another log"):
            read_all(tmp_path / "a")
        path.write_bytes(b"\x89HDF" * (len(whole) // 4) + b"x" * (len(whole) % 4))
        with pytest.raises(jde.DamagedFileError, match="no segment of a log"):
            read_all(tmp_path / "a")
        path.write_bytes(whole)
    np.testing.assert_array_equal(read_all(tmp_path / "a"), rows)


def test_foreign_files_stay(tmp_path):
    rows = make_log(tmp_path)
    (tmp_path / "segments" / "notes.txt").write_text("mine")
    (tmp_path / "segments" / "x.segment").write_text("mine")
    with jde.stores.Log(tmp_path) as log:
        np.testing.assert_array_equal(log.get(KEYS)[1], rows)
        log.commit("two")
    assert (tmp_path / "segments" / "notes.txt").read_text() == "mine"
    assert (tmp_path / "segments" / "x.segment").read_text() == "mine"


def test_manifests_that_lie_are_named(tmp_path):
    """With a checksum that fits: as a program with an error may write them."""
    from jax_dynemb._src.files.integrity import sum_of_json

    make_log(tmp_path)
    path = tmp_path / "commits" / "one.json"
    whole = path.read_text()
    fields = json.loads(whole)
    number, size, records, crc = fields["segments"][0]
    lies = [
        {"segments": [[number, size, 2**31, crc]]},
        {"segments": [[number, 2**63, records, crc]]},
        {"segments": [[number, size, 2**32 - 1, crc]]},
        {"segments": [[number, size, records]]},
        {"segments": [["x", size, records, crc]]},
        {"segments": fields["segments"] + fields["segments"][:1]},
        {"segments": fields["segments"][1:]},
        {"rows": fields["rows"] + 1},
        {"digest": fields["digest"] ^ 1},
        {"store": fields["store"] ^ 1},
        {"schema": {}},
        {"schema": fields["schema"] | {"dim": -1}},
        {"schema": fields["schema"] | {"dim": 2**40}},
        {"schema": fields["schema"] | {"dim": "5"}},
        {"schema": fields["schema"] | {"states": {"m": ["x"]}}},
        {"schema": fields["schema"] | {"param_dtype": "int8"}},
        {"format_version": 99},
        {"number": -1},
        {"tag": "two"},
    ]
    for lie in lies:
        body = {k: v for k, v in fields.items() if k != "crc32"} | lie
        path.write_text(json.dumps(body | {"crc32": sum_of_json(body)}))
        with pytest.raises(jde.DamagedFileError):
            pytest.fail(f"{lie}: {read_all(tmp_path)[:0]}")
    path.write_text(whole)
    read_all(tmp_path)


def test_a_damaged_commit_keeps_the_files_of_others(tmp_path):
    rng = np.random.default_rng(8)
    with jde.stores.Log(tmp_path, table_config()) as log:
        rows = random_rows(rng, 20, log)
        for name, part in (("one", rows[:10]), ("two", rows[10:])):
            log.put(np.arange(10), part)
            log.commit(name)
    (tmp_path / "commits" / "two.json").write_text("{")
    with pytest.raises(jde.DamagedFileError, match="two.json"):
        jde.stores.Log(tmp_path)
    before = sorted((tmp_path / "segments").iterdir())
    with jde.stores.Log(tmp_path, tag="one") as log:
        np.testing.assert_array_equal(log.get(np.arange(10))[1], rows[:10])
        log.commit("three")
        assert sorted((tmp_path / "segments").iterdir()) == before
