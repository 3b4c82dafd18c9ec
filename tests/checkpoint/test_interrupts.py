# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in save: the former checkpoint stays, and the next save works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import jax_dynemb as jde
from processes import NIGHTLY

PROGRAM = Path(__file__).parent / "interrupt_saves.py"
ROOT = Path(jde.__file__).resolve().parents[1]


@pytest.mark.slow
def test_an_interrupt_at_any_moment_of_a_save(tmp_path):
    rounds = 200 if NIGHTLY else 12
    command = [sys.executable, str(PROGRAM), str(tmp_path), str(rounds)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    ended = int(done.stdout.split()[1])
    assert ended >= rounds // 4  # the others were complete before
