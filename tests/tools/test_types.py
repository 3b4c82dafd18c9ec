# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A type checker finds a user's mistakes: the package has types for its choices."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("pyright", reason="pyright is an extra for developers")

SCRIPT = """
import jax_dynemb as jde

jde.TableConfig("a", dim=8, capacity=100, pooling="mean", nonfinite="skip")
jde.TableConfig("b", dim=8, capacity=100, pooling="avg")
jde.TableConfig("c", dim=8, capacity=100, on_full="drop")
jde.TableConfig("d", dim=8, capacity=100, score_strategy="lru")


@jde.nnx.jit
def scale(x: float, times: int) -> float:
    return x * times


scale(1.0, times=2)
scale(1.0, "2")
"""


def test_wrong_choices_and_arguments_are_found(tmp_path):
    script = tmp_path / "user.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "pyright", "--outputjson"]
    command += ["--pythonpath", sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    found = json.loads(done.stdout)["generalDiagnostics"]
    lines = [each["range"]["start"]["line"] + 1 for each in found]
    wrong = ['"avg"', '"drop"', '"lru"', 'scale(1.0, "2")']
    text = SCRIPT.splitlines()
    assert lines == [
        next(n for n, line in enumerate(text, 1) if each in line) for each in wrong
    ]
