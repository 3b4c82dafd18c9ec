# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Each unit test of TorchRec has one here, or a reason that the page names."""

import ast
import functools
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = runpy.run_path(str(ROOT / "tools/torchrec_tests_page.py"))
LISTED = TOOL["listed"]()
TESTS = list(TOOL["entries"](LISTED))


@functools.cache
def functions_of(file: str) -> set[str]:
    """The functions of a file of tests, without importing it."""
    tree = ast.parse((ROOT / "tests/torchrec" / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("number", range(len(TESTS)))
def test_a_test_here_stands_for_it(number):
    *_, entry = TESTS[number]
    assert entry.keys() <= {"ours", "forced"}
    file, name = entry["ours"].split("::")
    assert name in functions_of(file)
    assert entry.get("forced", "jit") in LISTED["reasons"]


def test_every_reason_is_used():
    used = {entry["forced"] for *_, entry in TESTS if "forced" in entry}
    assert used == LISTED["reasons"].keys()


def test_the_page_is_current():
    page = (ROOT / "docs/migration/torchrec_tests.md").read_text(encoding="utf-8")
    assert page == TOOL["page"](), "run python tools/torchrec_tests_page.py"
