# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A checkout that nobody has compiled hides the package that is installed."""

import pathlib
import shutil
import subprocess
import sys

import jax_dynemb


def test_says_what_to_do(tmp_path):
    package = pathlib.Path(jax_dynemb.__file__).parent
    folder = tmp_path / "jax_dynemb"
    shutil.copytree(package, folder, ignore=shutil.ignore_patterns("*.so"))
    program = "import jax_dynemb as jde; jde.TableConfig('t', dim=8, capacity=1000)"
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 1
    last = ran.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError") and str(folder) in last, ran.stderr
    assert "in another folder" in last and "pip install" in last
