# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""python -m jax_dynemb."""

import jax
import pytest

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


def test_self_test_on_the_platform(platform):
    command_line.self_test(jax.devices(platform)[0])


@pytest.mark.parametrize("arguments", [[], ["fly"]])
def test_unknown_command(arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        command_line.main(arguments)
    assert exit_.value.code == 2
    assert "info" in capsys.readouterr().err
