# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""tools/check_prose.py: long sentences, words for people, letters, openers, columns."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "check_prose.py"

LONG = " ".join(["go"] * 26) + "."


def check(root: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, str(TOOL), "--root", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def check_text(root: Path, name: str, text: str) -> tuple[int, str]:
    (root / name).write_text(text)
    return check(root, name)


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True)


def test_the_tool_is_clean():
    status, output = check(ROOT, TOOL.relative_to(ROOT).as_posix())
    assert status == 0, output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LONG, "26 words"),
        ("- one\n- " + LONG.replace(" ", "\n  "), "26 words"),
        (f"| a | {LONG} |", "26 words"),
        ("The thread who writes it waits.", "'who'"),
        ("Nobody reads it.", "'Nobody'"),
        ("The kernel asks for the row.", "'asks for'"),
        ("The lane is told its slot.", "'is told'"),
        ("The slot goes away.", "'goes away'"),
        ("The arrays are given away.", "'given away'"),
        ("It counts rows that left.", "'rows that left'"),
        ("In case c it takes 3 us.", "'case c'"),
        ("It cut c64 by 3 us.", "'c64'"),
        ("It cut p's evaluation.", "'p's'"),
        ("Three workloads (c, d, e) gain.", "'(c, d, e)'"),
        ("x" * 101, "101 columns"),
    ],
)
def test_findings_in_markdown(tmp_path, text, message):
    status, output = check_text(tmp_path, "page.md", f"# Title\n\n{text}\n")
    assert status == 1
    assert message in output
    assert output.startswith("page.md:3: ") or "page.md:4: " in output


@pytest.mark.parametrize(
    "text",
    [
        LONG.replace("go go", "go", 1),
        " ".join(["15"] * 30) + ".",
        f"{LONG[:44]}. {LONG[:44]}.",
        "Users who train, and anyone who reads.",
        "```\n" + "nobody " * 30 + "\n```",
        "| " + "x" * 120 + " |",
        "The name `nobody asks` is code.",
        "It is a case of a cache.",
    ],
)
def test_good_markdown(tmp_path, text):
    status, output = check_text(tmp_path, "page.md", f"# Title\n\n{text}\n")
    assert status == 0, output


def test_letters_are_defined_in_the_benchmark_pages(tmp_path):
    (tmp_path / "docs").mkdir()
    assert check_text(tmp_path, "docs/performance.md", "Case c64 is one.\n")[0] == 0
    assert check_text(tmp_path, "docs/other.md", "Case c64 is one.\n")[0] == 1


@pytest.mark.parametrize(
    ("docstring", "message"),
    [
        ("Of the mesh.", "opens with 'Of'"),
        ("By piece, the arrays.", "opens with 'By'"),
        ("Those that remain.", "opens with 'Those'"),
        ("What a call returns.", "opens with 'What'"),
        ("The bags of a table.", "opens with 'The'"),
        (f"Returns it.\n\n    {LONG}", "26 words"),
    ],
)
def test_findings_in_docstrings(tmp_path, docstring, message):
    text = f'def find():\n    """{docstring}"""\n'
    status, output = check_text(tmp_path, "module.py", text)
    assert status == 1
    assert message in output


def test_good_docstrings(tmp_path):
    text = '''"""Finds rows."""
def find(ids):
    """The kernel writes one slot per id.

    Args:
      ids: of any shape.

    Returns:
      One slot for each id, -1 where the table has none.
    """
    return ids  # prefetched
'''
    assert check_text(tmp_path, "module.py", text) == (0, "")


@pytest.mark.parametrize("name", ["module.py", "kernel.cu"])
def test_findings_in_comments(tmp_path, name):
    mark = "#" if name.endswith(".py") else "//"
    status, output = check_text(tmp_path, name, f"a = 1  {mark} nobody waits\n")
    assert status == 1
    assert f"{name}:1: 'nobody'" in output


def test_changed_files_only(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "old.md").write_text("Nobody.\n")
    (tmp_path / "new.md").write_text("Good.\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    assert check(tmp_path, "--changed", "HEAD") == (0, "")
    (tmp_path / "new.md").write_text("Somebody.\n")
    status, output = check(tmp_path, "--changed", "HEAD")
    assert status == 1
    assert "new.md:1" in output
    assert "old.md" not in output


def test_unknown_revision_is_an_error(tmp_path):
    git(tmp_path, "init", "-q")
    status, output = check(tmp_path, "--changed", "nowhere")
    assert status == 1
    assert "nowhere" in output
