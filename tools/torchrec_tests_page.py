#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/migration/torchrec_tests.md: TorchRec's unit tests, ours beside them.

python tools/torchrec_tests_page.py
"""

from __future__ import annotations

import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "docs/migration"
PARAGRAPHS = (
    "TorchRec tests its jagged tensors, keyed tensors, collections and feature "
    "processors with {all} unit tests. They were translated line by line: imports of "
    "`jax_dynemb.torchrec`, tensors of NumPy, `rngs=` for a collection, and "
    "`torch.jit.script` left out. Then {passed} pass. The other {forced} need a part "
    "of torch that JAX does in another way. Each of them is named below. Tests that "
    "need a device of CUDA were not run, and count as such.",
    "A test of this project checks the same as each of theirs, as far as it can be "
    "checked.",
)


def listed() -> dict[str, Any]:
    """Reads the list that the page and the tests share."""
    return tomllib.loads((FOLDER / "torchrec_tests.toml").read_text(encoding="utf-8"))


def entries(of: dict[str, Any]) -> Iterator[tuple[str, str, str, dict[str, str]]]:
    """Yields file, class and name of each test of TorchRec, and what stands for it."""
    for file, classes in of["tests"].items():
        for kind, tests in classes.items():
            for name, entry in tests.items():
                yield file, kind, name, entry


def page() -> str:
    """Makes the page."""
    of = listed()
    tests = list(entries(of))
    counts = Counter(entry.get("forced", "") for *_, entry in tests)
    passed = counts[""]
    numbers = {"all": len(tests), "passed": passed, "forced": len(tests) - passed}
    lines = ["# TorchRec's unit tests"]
    for text in PARAGRAPHS:
        lines += ["", *textwrap.wrap(text.format(**numbers), 98)]
    lines += ["", "## What is done in another way", ""]
    lines += ["| name | tests | what |", "| --- | --- | --- |"]
    lines += [f"| {n} | {counts[n]} | {why} |" for n, why in of["reasons"].items()]
    for file in of["tests"]:
        lines += ["", *_of(file, of)]
    return "\n".join(lines) + "\n"


def _of(file: str, of: dict[str, Any]) -> list[str]:
    own = [entry for entry in entries(of) if entry[0] == file]
    forced = sum("forced" in entry for *_, entry in own)
    text = f"{len(own) - forced} of {len(own)} pass. In another way:"
    if not forced:
        text = f"All {len(own)} pass."
    lines = [f"## `{file}`", "", *textwrap.wrap(text, 98), ""]
    if not forced:
        return lines[:-1]
    lines += ["| test | name | tested here by |", "| --- | --- | --- |"]
    return lines + [
        f"| `{kind}.{name}` | {entry['forced']} | `{entry['ours']}` |"
        for _, kind, name, entry in own
        if "forced" in entry
    ]


if __name__ == "__main__":
    (FOLDER / "torchrec_tests.md").write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {FOLDER / 'torchrec_tests.md'}\n")
