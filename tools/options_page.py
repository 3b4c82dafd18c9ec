#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/migration/options.md: every option of the peers, ours beside it.

python tools/options_page.py
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "docs/migration"
HEAD = """# Every option of the peers

A test stands behind each line. It gives the example to the call that the section names,
and compares the result with what is said here. An option that changes no number is
passed over. Refused means an error that says what to write, in these words.
"""


def options() -> dict[str, Any]:
    """Reads the list that the page and the tests share."""
    return tomllib.loads((FOLDER / "options.toml").read_text(encoding="utf-8"))


def page() -> str:
    """Makes the page."""
    lines = [line for peer in options().values() for line in _of(peer)]
    return "\n".join([HEAD, *lines])


def _of(peer: dict[str, Any]) -> list[str]:
    head = ["| option | default | example | here |", "| --- | --- | --- | --- |"]
    lines = [_line(name, option) for name, option in peer["options"].items()]
    into = f"`{peer['into']}` takes them."
    return [f"## {peer['title']}", "", into, peer["about"], "", *head, *lines, ""]


def _line(name: str, option: dict[str, Any]) -> str:
    given = option.get("with", {}) | {name: option["other"]}
    example = ", ".join(f"{k}={v!r}" for k, v in given.items())
    if "gives" in option:
        here = f"`{option['gives']}`" if option["gives"] else "as without both"
    elif "note" in option:
        here = f"passed over: {option['note']}"
    else:
        here = f"refused: {option['refused']}"
    return f"| `{name}` | `{option.get('default')!r}` | `{example}` | {here} |"


if __name__ == "__main__":
    (FOLDER / "options.md").write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {FOLDER / 'options.md'}\n")
