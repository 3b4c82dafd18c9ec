# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""python -m jax_dynemb."""

import os
import subprocess
import sys

import jax
import pytest

import jax_dynemb as jde
from jax_dynemb import __main__ as command_line


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")


def test_info_tells_what_is_there(capsys):
    assert command_line.main(["info"]) == 0
    output = capsys.readouterr().out
    for word in ("jax_dynemb", "jaxlib", jax.__version__, "_dynemb_cpu", "cpu:0", "ok"):
        assert word in output


def test_info_fails_when_a_device_fails(capsys, monkeypatch):
    def broken(device):
        raise AssertionError("[3] rows are missing")

    monkeypatch.setattr(command_line, "self_test", broken)
    assert command_line.main(["info"]) == 1
    assert "AssertionError: [3] rows are missing" in capsys.readouterr().out


def test_self_test_on_the_platform(platform, monkeypatch):
    """It passes, and it does compare: rows of another initializer fail it."""
    device = jax.devices(platform)[0]
    command_line.self_test(device)
    monkeypatch.setattr(jde.initializers, "debug", jde.initializers.zeros)
    with pytest.raises(AssertionError):
        command_line.self_test(device)


def test_version(capsys):
    with pytest.raises(SystemExit) as exit_:
        command_line.main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"jax_dynemb {jde.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["fly"]])
def test_unknown_command(arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        command_line.main(arguments)
    assert exit_.value.code == 2
    assert "info" in capsys.readouterr().err


IMPORT = """
import sys
import flax.nnx  # which needs rich for tables of its own

unloaded = {"rich", "scipy"}

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in unloaded:
            raise ImportError(name)

for name in [name for name in sys.modules if name.split(".")[0] in unloaded]:
    del sys.modules[name]
sys.meta_path.insert(0, Refused())
import jax_dynemb
"""


def test_the_library_does_not_load_what_only_prints_or_plans():
    command = [sys.executable, "-P", "-c", IMPORT]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


BAR = """
from jax_dynemb._src.files.disk import progress_bar

with progress_bar("rows of t", 400) as advance:
    for _ in range(4):
        advance(100)
"""


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_where_there_is_a_terminal(terminal):
    told = {"COLUMNS": "100", "TERM": "xterm"}
    environment = {k: v for k, v in os.environ.items() if k != "FORCE_COLOR"} | told
    if terminal:
        environment["FORCE_COLOR"] = "1"  # rich takes the pipe for a terminal
    command = [sys.executable, "-P", "-c", BAR]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    )
    assert ("rows of t" in done.stderr and "100%" in done.stderr) == terminal
    assert (done.stderr == "") != terminal and done.stdout == ""
