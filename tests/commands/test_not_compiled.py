# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A checkout that is not compiled hides the package that is installed."""

import pathlib
import shutil
import subprocess
import sys

import pytest

import jax_dynemb


@pytest.fixture
def folder(tmp_path):
    package = pathlib.Path(jax_dynemb.__file__).parent
    folder = tmp_path / "jax_dynemb"
    shutil.copytree(package, folder, ignore=shutil.ignore_patterns("*.so"))
    return folder


def last_words(folder):
    """Returns what a program prints last that makes a table beside the folder."""
    program = "import jax_dynemb as jde; jde.TableConfig('t', dim=8, capacity=1000)"
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True)
    assert ran.returncode == 1
    last = ran.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError"), ran.stderr
    return last


def test_says_what_to_do(folder):
    last = last_words(folder)
    assert str(folder) in last and "in another folder" in last and "pip install" in last


def test_says_why_what_is_there_cannot_be_loaded(folder):
    module = folder / "_dynemb_cpu.abi3.so"
    module.touch()
    assert last_words(folder) == f"ImportError: {module}: file too short"
