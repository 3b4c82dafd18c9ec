# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Links and forged lists of checksums lead neither out of a checkpoint nor into it."""

import json
import shutil
import zlib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde

COLL = jde.Tables([jde.TableConfig("cat", dim=4, capacity=256)])


@pytest.fixture
def saved(tmp_path) -> Path:
    path = tmp_path / "run"
    _, _, state = COLL.lookup(COLL.init(0), {"cat": jde.ids(np.arange(50))})
    tree = {"tables": state, "x": jnp.arange(3.0)}
    jde.checkpoint.save(path, 1, tree, tables=COLL, wait=True)
    return path


def restore(path: Path, **options):
    tree = {"tables": COLL.init(1), "x": jnp.zeros(3)}
    found = jde.checkpoint.restore(path, tree, tables=COLL, **options).tree
    np.testing.assert_array_equal(found["x"], np.arange(3.0))
    assert COLL.stats(found["tables"])["cat/rows"] == 50


def replace_by_link(path: Path, outside: Path) -> None:
    shutil.move(path, outside)
    path.symlink_to(outside)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(
    "name", ["x", "x/0", "jax_dynemb.json", "tables.cat.index/0.0"]
)
def test_links_out_of_a_checkpoint_are_refused(saved, tmp_path, name, verify):
    replace_by_link(saved / "1" / "state" / name, tmp_path / "outside")
    with pytest.raises(jde.DamagedFileError, match="is a link to outside") as raised:
        restore(saved, verify=verify)
    assert raised.value.path.endswith(name)


@pytest.mark.parametrize("name", ["1", "1/state"])
def test_a_checkpoint_may_lie_elsewhere_as_a_whole(saved, tmp_path, name):
    replace_by_link(saved / name, tmp_path / "outside")
    restore(saved)


def test_links_inside_are_taken(saved):
    file = saved / "1" / "state" / "x" / "0"
    shutil.move(file, file.with_name(".other"))
    file.symlink_to(".other")
    restore(saved)


@pytest.mark.parametrize("name", ["2", "2.orbax-checkpoint-tmp", "1"])
@pytest.mark.parametrize("there", [True, False])
def test_a_save_goes_through_no_link(saved, tmp_path, name, there):
    outside = tmp_path / "outside"
    if there:
        outside.mkdir()
        (outside / "mine").write_text("mine")
    shutil.rmtree(saved / name, ignore_errors=True)
    (saved / name).symlink_to(outside)
    with pytest.raises(ValueError, match="is a link, and a save neither writes"):
        jde.checkpoint.save(saved, 2, {"x": jnp.ones(3)})
    assert outside.exists() == there
    if there:
        assert [each.name for each in outside.iterdir()] == ["mine"]
    (saved / name).unlink()  # as the sentence says
    jde.checkpoint.save(saved, 2, {"x": jnp.ones(3)}, wait=True)
    assert jde.checkpoint.latest(saved) == 2


def forge(path: Path, change) -> None:
    """Changes a list of checksums, and its own checksum with it."""
    file = path / "1" / "state" / "checksums.json"
    fields = json.loads(file.read_text())
    del fields["crc32"]
    change(fields["files"])
    fields["crc32"] = zlib.crc32(json.dumps(fields, sort_keys=True).encode())
    file.write_text(json.dumps(fields))


ENTRY = {"bytes": 1, "crc32": [0]}
FORGED = {
    "it lacks a file": (lambda files: files.pop("x/0"), "x/0", "does not name it"),
    "it lacks an array": (
        lambda files: [files.pop(n) for n in list(files) if n.startswith("x/")],
        "",
        "does not name it",
    ),
    "it names another": (lambda f: f.update({"y/0": ENTRY}), "y/0", "it is missing"),
    "above": (lambda f: f.update({"../../a": ENTRY}), "checksums.json", "outside of"),
    "absolute": (
        lambda f: f.update({"/etc/hosts": ENTRY}),
        "checksums.json",
        "outside",
    ),
    "nothing": (lambda f: f.clear(), "jax_dynemb.json", "does not name it"),
}


@pytest.mark.parametrize("kind", FORGED)
def test_forged_lists_are_refused(saved, kind):
    change, name, match = FORGED[kind]
    forge(saved, change)
    if kind == "it lacks a file":  # what such a list would hide
        other = np.full(3, 9.0, np.float32)
        (saved / "1" / "state" / "x" / "0").write_bytes(other.tobytes())
    with pytest.raises(jde.DamagedFileError, match=match) as raised:
        restore(saved)
    assert raised.value.path.endswith(name)


def test_files_that_nobody_saved_are_refused(saved):
    (saved / "1" / "state" / "x" / "7").write_bytes(b"12")
    with pytest.raises(jde.DamagedFileError, match=r"checksums\.json does not name it"):
        restore(saved)
    (saved / "1" / "state" / "x" / "7").rename(saved / "1" / "state" / ".DS_Store")
    restore(saved)  # of a file browser
