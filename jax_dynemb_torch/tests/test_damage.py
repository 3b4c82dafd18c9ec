# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A file that is not what was written is refused by name; old files are still read."""

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import jax_dynemb_torch as jdt
from known import GOLDEN, KEYS, UNCHECKED, look_up, table, table_after_delta

FOLDERS = ("float32", "bfloat16", "int8", "int4", "dump1", "dump4")


def load_all(folder: Path) -> None:
    for name in jdt.table_names(folder):
        jdt.load(folder, name)


@pytest.mark.parametrize("name", FOLDERS)
def test_every_byte_that_is_read_is_watched(tmp_path, name):
    folder = tmp_path / name
    shutil.copytree(GOLDEN / name, folder)
    rng = np.random.default_rng(0)
    watched = 0
    for file in sorted(folder.iterdir()):
        if "scores" in file.name:
            continue  # not read here
        sound = file.read_bytes()
        for place in rng.integers(0, 8 * len(sound), 12):
            data = bytearray(sound)
            data[place // 8] ^= 1 << (place % 8)
            file.write_bytes(data)
            with pytest.raises(jdt.DamagedFileError) as raised:
                load_all(folder)
            assert Path(raised.value.path).parent == folder
            assert raised.value.path in str(raised.value)
            watched += 1
        file.write_bytes(sound)
    assert watched >= 24
    load_all(folder)


@pytest.mark.parametrize("name", ("float32", "dump1", "dump4"))
def test_files_without_checksums_are_read(name):
    after = name == "float32"  # where a delta lies beside
    rows = table_after_delta() if after else table()
    module = jdt.DynamicEmbedding(UNCHECKED / name, "items")
    ids = KEYS
    default = {} if after else {"default": 0.0}
    expected = look_up(rows, ids, **default)
    np.testing.assert_array_equal(module(torch.tensor(ids)), expected)


def test_the_newest_delta_may_not_be_missing(tmp_path):
    folder = tmp_path / "float32"
    shutil.copytree(GOLDEN / "float32", folder)
    (folder / "items.delta-000001.safetensors").unlink()
    with pytest.raises(jdt.DamagedFileError, match="which is missing") as raised:
        jdt.load(folder, "items")
    assert raised.value.path == str(folder / "items.manifest.json")
    (folder / "items.manifest.json").unlink()
    with pytest.raises(jdt.DamagedFileError, match="newest delta may be too"):
        jdt.load(folder, "items")
    assert jdt.load(folder / "items.safetensors").name == "items"  # one file, alone


def test_a_failed_delta_changes_nothing(tmp_path):
    folder = tmp_path / "float32"
    shutil.copytree(GOLDEN / "float32", folder)
    module = jdt.DynamicEmbedding(folder / "items.safetensors")
    before = module.snapshot
    delta = folder / "items.delta-000001.safetensors"
    data = bytearray(delta.read_bytes())
    data[-3] ^= 8
    delta.write_bytes(data)
    for path in (delta, folder):
        with pytest.raises(jdt.DamagedFileError, match="of 'rows', do not match"):
            module.apply_delta(path)
        assert module.snapshot is before


def test_a_wrong_index_of_an_unchecked_file(tmp_path):
    """Its words would lead ids to other rows in silence."""
    path = tmp_path / "items.safetensors"
    data = bytearray((UNCHECKED / "float32" / path.name).read_bytes())
    words = jdt.load(UNCHECKED / "float32", "items").snapshot.base.words
    first = data.index(words.numpy().tobytes()[:64])
    data[first : first + 64] = bytes(64)
    path.write_bytes(data)
    with pytest.raises(jdt.DamagedFileError, match="does not lead to its keys"):
        jdt.load(path)


def test_the_exception_travels_between_processes():
    error = jdt.DamagedFileError("x", "it is short")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert isinstance(error, ValueError)
