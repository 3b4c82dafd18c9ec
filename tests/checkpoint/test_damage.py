# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint with a damaged file is refused, and the file is named."""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from support import without_identity

COLL = jde.Tables([jde.TableConfig("cat", dim=4, capacity=256)])

# What orbax writes once the arrays are complete.
WITHOUT_DATA = ("_CHECKPOINT_METADATA", "commit_success.txt")


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> tuple[Path, dict]:
    path = tmp_path_factory.mktemp("sound")
    _, _, state = COLL.lookup(COLL.init(0), {"cat": jde.ids(np.arange(100))})
    jde.checkpoint.save(path, 1, state, tables=COLL, wait=True)
    return path, state


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [flip_a_bit, cut_off, Path.unlink])
def test_every_file_is_watched(sound, tmp_path, damage):
    files = [f.relative_to(sound[0]) for f in sound[0].rglob("*") if f.is_file()]
    names = [f for f in files if f.name not in WITHOUT_DATA]
    assert len(names) >= 8  # arrays, orbax's own, ours
    assert all(f.parts[1] == "state" for f in names)
    for number, name in enumerate(sorted(names)):
        copy = tmp_path / str(number)
        shutil.copytree(sound[0], copy)
        if not (copy / name).stat().st_size:
            continue
        damage(copy / name)
        if name.name == "checksums.json" and not (copy / name).exists():
            assert jde.checkpoint.steps(copy) == []
        with pytest.raises(jde.DamagedFileError, match="is damaged: ") as raised:
            jde.checkpoint.restore(copy, COLL.init(0), tables=COLL)
        assert raised.value.path == str(copy / name) in str(raised.value)
        shutil.rmtree(copy)


@pytest.mark.parametrize("damage", [flip_a_bit, cut_off, Path.unlink])
def test_what_is_not_watched_holds_nothing(sound, tmp_path, damage):
    copy = tmp_path / "copy"
    shutil.copytree(sound[0], copy)
    for path in [f for f in copy.rglob("*") if f.name in WITHOUT_DATA]:
        if path.stat().st_size:
            damage(path)
    again = jde.checkpoint.restore(copy, COLL.init(1), tables=COLL).tree
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(sound[1]), strict=True):
        np.testing.assert_array_equal(without_identity(a), without_identity(b))


def test_the_model_is_untouched_by_a_damaged_checkpoint(sound, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(sound[0], copy)
    largest = max(copy.rglob("*"), key=lambda path: path.stat().st_size)
    flip_a_bit(largest)
    state = COLL.init(3)
    with pytest.raises(ValueError, match=r"Restore another step \(step=...\)"):
        jde.checkpoint.restore(copy, state, tables=COLL)
    assert COLL.stats(state)["cat/rows"] == 0
    # One may look at it all the same.
    jde.checkpoint.restore(copy, state, tables=COLL, verify=False)
