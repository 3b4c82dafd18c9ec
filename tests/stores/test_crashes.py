# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A log whose process dies, or whose disk is full, at any call that changes a file."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"


@pytest.fixture(scope="session")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that is loaded before all others, see faults.c."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs Linux and a C compiler")
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    options = ["-shared", "-fPIC", "-O1", "-o", str(library)]
    subprocess.run([compiler, *options, str(HERE / "faults.c"), "-ldl"], check=True)
    return library


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode, trials",
    [("kill", 1000), ("power", 1000), ("nospace", 300), ("slow", 3)],
)
def test_the_last_commit_opens(faults, tmp_path, mode, trials):
    """At every call of the first processes, and at all of them by night."""
    trials = trials if NIGHTLY else min(trials, 150)
    script = [sys.executable, str(HERE / "crash_log.py"), str(tmp_path), mode]
    environment = os.environ | {
        "LD_PRELOAD": str(faults),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    done = subprocess.run(
        [*script, str(trials)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    deaths = int(done.stdout.split(" calls, ")[1].split()[0])
    assert deaths >= trials // 2 if mode in ("kill", "power") else deaths == 0
