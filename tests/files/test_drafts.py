# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Drafts, threads, disks that refuse, progress: what surrounds the bytes of files."""

import contextlib
import errno
import fcntl
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb.__main__ import main as command
from jax_dynemb._src.files.checkpoint import orbax as _orbax
from jax_dynemb._src.files.disk import disk_errors, new_directory, new_file
from jax_dynemb._src.files.disk import drafts as _drafts
from jax_dynemb._src.files.disk import progress as _progress

CONFIG = jde.TableConfig("cat", 4, 256)
COLL = jde.Tables([CONFIG])
WRITER = """
import sys, time
from pathlib import Path
from jax_dynemb._src.files.disk import new_directory, new_file
make = {"directory": new_directory, "file": new_file}[sys.argv[1]]
with make(Path(sys.argv[2])) as draft:
    if sys.argv[1] == "directory":
        (draft / "part").write_text("half")
    print(draft, flush=True)
    time.sleep(600)
"""


def filled(keys=(1, 2, 3), seed: int = 0):
    return COLL.lookup(COLL.init(seed), {"cat": jde.ids(list(keys))})[2]


@contextlib.contextmanager
def writer(kind: str, path: Path):
    """A process that is in the midst of writing; yields it and its draft."""
    command = [sys.executable, "-P", "-c", WRITER, kind, str(path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_drafts_of_the_dead_go_and_those_of_the_living_stay(tmp_path):
    path = tmp_path / "out"
    with (
        writer("directory", path) as (dead, old),
        writer("directory", path) as (_, own),
    ):
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        earlier = tmp_path / f"out.tmp-{dead.pid}"  # the name of earlier versions
        earlier.mkdir()
        elsewhere = tmp_path / "out.tmp-00000000-1-abcdef01"  # of another machine
        elsewhere.mkdir()
        others = tmp_path / "out2.tmp-notes"  # not a draft of ours
        others.mkdir()
        assert old.is_dir() and own.is_dir()
        jde.export.safetensors(path, COLL, filled(), quiet=True)
        assert not old.exists() and not earlier.exists()
        assert (own / "part").read_text() == "half"
        assert elsewhere.exists() and others.exists()
    assert (path / "cat.safetensors").exists()


def test_drafts_of_deltas_go_too(tmp_path):
    path, state = tmp_path / "out", filled()
    jde.export.safetensors(path, COLL, state, quiet=True)
    target = path / "cat.delta-000001.safetensors"
    with writer("file", target) as (dead, old), writer("file", target) as (_, own):
        dead.kill()
        dead.wait()
        state = COLL.lookup(state, {"cat": jde.ids([9])})[2]
        jde.export.delta(path, COLL, state)
        assert not old.exists() and own.exists()
    new = jde.import_.safetensors(path, COLL, quiet=True).state
    assert COLL.stats(new)["cat/rows"] == 4


def test_a_draft_that_is_taken_is_made_anew(tmp_path, monkeypatch):
    """Another process may take a draft for dead before its maker has locked it."""
    found = []

    def make(path: Path) -> None:
        path.mkdir()
        found.append(path)
        if len(found) == 1:
            path.rmdir()

    with _drafts.draft_of(tmp_path / "x", make) as draft:
        assert draft == found[1] and draft.is_dir()


def test_threads_that_export_to_one_path(tmp_path):
    """One of them wins; the others raise, and nothing is mixed."""
    states = [filled(range(10 * n + 1, 10 * n + 9), n) for n in range(4)]
    together = threading.Barrier(4)

    def export(state):
        together.wait()
        try:
            jde.export.safetensors(tmp_path / "out", COLL, state, quiet=True)
        except FileExistsError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(4) as pool:
        errors = list(pool.map(export, states))
    (winner,) = [n for n, error in enumerate(errors) if error is None]
    assert all("exists. Give a directory that does not" in e for e in errors if e)
    new = jde.import_.safetensors(tmp_path / "out", COLL, quiet=True).state
    keys = sorted(np.concatenate([c.keys for c in COLL.export(new, "cat")]).tolist())
    assert keys == list(range(10 * winner + 1, 10 * winner + 9))
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_draft_that_is_removed_can_not_be_taken_meanwhile(tmp_path, monkeypatch):
    """Its maker may be about to lock it, and would write into what is gone."""
    draft = tmp_path / f"out.tmp-{_drafts._host()}-{os.getpid()}-1"
    draft.mkdir()
    taken = []

    def remove(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken.append(path)
        except BlockingIOError:
            path.rmdir()
        finally:
            os.close(descriptor)

    monkeypatch.setattr(_drafts, "_remove", remove)
    with new_directory(tmp_path / "out"):
        assert not draft.exists() and not taken


def test_threads_that_write_deltas_take_turns(tmp_path):
    path = tmp_path / "out"
    state = filled()
    jde.export.safetensors(path, COLL, state, quiet=True)
    newer = COLL.lookup(state, {"cat": jde.ids([7])})[2]
    with ThreadPoolExecutor(4) as pool:
        written = list(
            pool.map(lambda _: jde.export.delta(path, COLL, newer), range(4))
        )
    files = [each["cat"] for each in written if each["cat"] is not None]
    assert files == [path / "cat.delta-000001.safetensors"]
    found = jde.import_.safetensors(path, COLL, quiet=True)
    assert COLL.stats(found.state)["cat/rows"] == 4


@contextlib.contextmanager
def small_disk(size: int):
    """No file may grow beyond a size: the system refuses, as a full disk does."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)


WRITERS = {
    "safetensors": lambda path: jde.export.safetensors(
        path, COLL, filled(), quiet=True
    ),
    "parts": lambda path: jde.export.safetensors(
        path, COLL, filled(range(1, 120)), quiet=True, sort_bytes=900
    ),
    "dynamicemb": lambda path: jde.export.dynamicemb(
        path, COLL, filled(), optimizer=False, quiet=True
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_names_the_path(tmp_path, name):
    with small_disk(8), pytest.raises(OSError) as raised:
        WRITERS[name](tmp_path / "out")
    assert raised.value.filename == str(tmp_path / "out")
    assert raised.value.errno == errno.EFBIG
    assert not list(tmp_path.iterdir())


def test_a_full_disk_names_the_path_of_a_delta(tmp_path):
    path, state = tmp_path / "out", filled()
    jde.export.safetensors(path, COLL, state, quiet=True)
    before = sorted(path.iterdir())
    state = COLL.lookup(state, {"cat": jde.ids([9])})[2]
    with small_disk(8), pytest.raises(OSError) as raised:
        jde.export.delta(path, COLL, state)
    assert raised.value.filename == str(path / "cat.delta-000001.safetensors")
    assert sorted(path.iterdir()) == before
    assert jde.export.delta(path, COLL, state)["cat"] is not None


SAVER = """
import resource, sys
import jax_dynemb as jde

tables = jde.Tables([jde.TableConfig("cat", 4, 256)])
_, _, state = tables.lookup(tables.init(0), {"cat": jde.ids([1, 2, 3])})
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
try:
    jde.checkpoint.save(sys.argv[1], 1, state, tables=tables, wait=True)
except OSError as error:
    print(error.errno, error.filename, jde.checkpoint.latest(sys.argv[1]))
    print(tables.stats(state)["cat/rows"])
"""


def test_a_full_disk_names_the_path_of_a_checkpoint(tmp_path):
    """In a process of its own: writes that orbax gave up may end after the error."""
    path = tmp_path / "run"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", SAVER, str(path)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.stdout.splitlines() == [f"{errno.EFBIG} {path} None", "3"], done.stderr


@pytest.mark.parametrize(
    ("said", "raised"),
    [
        ("Error writing local file [os_error_code='28']", OSError),
        ("Error writing local file [OS error 28: ENOSPC]", OSError),
        ("nothing of the disk", ValueError),
    ],
)
def test_a_full_disk_in_the_words_of_tensorstore(tmp_path, monkeypatch, said, raised):
    def fail(*_, **__):
        raise ValueError(said)

    monkeypatch.setattr(_orbax, "save", fail)
    with pytest.raises(raised) as error:
        jde.checkpoint.save(tmp_path, 1, {"x": np.ones(3)})
    if raised is OSError:
        assert error.value.filename == str(tmp_path)
        assert error.value.errno == errno.ENOSPC


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("call", ["mkdir", "fsync", "rename"])
def test_whatever_the_disk_says_names_the_path(tmp_path, monkeypatch, number, call):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match=re.escape(str(tmp_path / "out"))) as raised:
        jde.export.safetensors(tmp_path / "out", COLL, filled(), quiet=True)
    assert raised.value.errno == number
    monkeypatch.undo()
    assert not list(tmp_path.iterdir())


def test_errors_that_name_another_file_keep_it(tmp_path):
    with pytest.raises(FileNotFoundError) as raised, new_directory(tmp_path / "out"):
        (tmp_path / "source").read_bytes()
    assert raised.value.filename == str(tmp_path / "source")
    with pytest.raises(OSError, match="nothing to say") as other, disk_errors(tmp_path):
        raise OSError("nothing to say")
    assert str(tmp_path) in str(other.value)
    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "file"):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_a_process_that_saves_keeps_its_draft(tmp_path):
    """Orbax would delete a checkpoint's draft for the next process that saves there."""
    script = (
        "import sys, time, jax.numpy as jnp, jax_dynemb as jde\n"
        "jde.checkpoint.save(sys.argv[1], 1, {'x': jnp.ones(3)}, wait=True)\n"
        "print('saved', flush=True)\n"
        "time.sleep(600)\n"
    )
    path = tmp_path / "run"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", script, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().strip() == "saved"
        draft = path / "2.orbax-checkpoint-tmp"
        (draft / "state").mkdir(parents=True)
        tree = {"x": np.ones(3)}
        jde.checkpoint.save(path, 3, tree, wait=True)
        assert draft.exists()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    jde.checkpoint.save(path, 4, tree, keep=5, wait=True)  # another manager
    assert not draft.exists() and jde.checkpoint.steps(path) == [1, 3, 4]


def test_convert_shows_progress(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(_progress, "_EVERY", 0.0)
    jde.export.safetensors(tmp_path / "in", COLL, filled(), quiet=True)
    capsys.readouterr()
    arguments = [str(tmp_path / "in"), str(tmp_path / "out")]
    assert command(["convert", *arguments, "--to", "safetensors"]) == 0
    said = capsys.readouterr().err
    assert "verifying: 100%" in said
    assert "safetensors: 50%" in said and "safetensors: 100%" in said
    assert "3 rows of 1 tables are in" in said and arguments[1] in said


def test_progress_is_quiet_when_told_to(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(_progress, "_EVERY", 0.0)
    jde.export.safetensors(tmp_path / "in", COLL, filled(), quiet=True)
    jde.import_.safetensors(tmp_path / "in", COLL, quiet=True)
    assert capsys.readouterr().err == ""
