#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that CHANGELOG.md keeps its form and says what changed.

    python tools/check_changelog.py [--root FOLDER] [--base REVISION]

The form is that of https://keepachangelog.com: ``## [Unreleased]`` first, then
releases, newest first. If code that users run differs from the newest release (there is
none yet: always), ``[Unreleased]`` must hold an entry. With ``--base``, code changed
since that revision also needs a changed CHANGELOG.md.
"""

import argparse
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CODE = ("jax_dynemb", "core", "cpu", "cuda", "xla_ffi", "pyproject.toml")
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
UNRELEASED = "[Unreleased]"
RELEASE = re.compile(r"\[(\d+)\.(\d+)\.(\d+)\] - \d{4}-\d{2}-\d{2}$")


def sections(text: str) -> dict[str, list[str]]:
    """Returns the lines below each ``## `` heading, in file order."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("## "):
            lines = found.setdefault(line[3:].strip(), [])
        else:
            lines.append(line)
    return found


def releases(headings: list[str]) -> list[tuple[int, ...]]:
    """Returns the version numbers in the headings that name a release."""
    matches = (RELEASE.match(heading) for heading in headings)
    return [tuple(int(part) for part in m.groups()) for m in matches if m]


def check_form(text: str) -> Iterator[str]:
    """Yields one sentence for each departure from the form."""
    if not text.startswith("# Changelog"):
        yield "start the file with the heading '# Changelog'."
    found = sections(text)
    headings = list(found)
    if not headings or headings[0] != UNRELEASED:
        yield f"make '## {UNRELEASED}' the first section."
    for heading in headings:
        if heading != UNRELEASED and not RELEASE.match(heading):
            yield f"'## {heading}': write '## [1.2.3] - 2026-01-31'."
    versions = releases(headings)
    if any(newer <= older for newer, older in itertools.pairwise(versions)):
        yield "put the releases in order, newest first, each once."
    for line in itertools.chain.from_iterable(found.values()):
        if line.startswith("### ") and line[4:].strip() not in KINDS:
            yield f"'{line}': the kinds of change are {', '.join(KINDS)}."


def changed_files(root: Path, revision: str) -> list[str]:
    """Returns the files that differ between a revision and the working tree."""
    command = ["git", "diff", "--name-only", revision, "--"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"check_changelog: {done.stderr.strip()}")
    return done.stdout.splitlines()


def is_code(name: str) -> bool:
    """Whether a change of this file can be seen by users."""
    return name.split("/")[0] in CODE


def tag_exists(root: Path, tag: str) -> bool:
    """Whether the repository has this tag."""
    command = ["git", "rev-parse", "--verify", "--quiet", f"refs/tags/{tag}"]
    return not subprocess.run(command, cwd=root, capture_output=True).returncode


def check_content(root: Path, text: str, base: str | None) -> Iterator[str]:
    """Yields a sentence if a change of the code is not told."""
    found = sections(text)
    told = any(line.lstrip().startswith("- ") for line in found.get(UNRELEASED, []))
    versions = releases(list(found))
    if versions:
        tag = "v" + ".".join(str(part) for part in versions[0])
        released = tag_exists(root, tag)
        changed = released and any(map(is_code, changed_files(root, tag)))
    else:
        changed = True
    if changed and not told:
        yield f"the code changed; say in '{UNRELEASED}' what a user will notice."
    if base:
        files = changed_files(root, base)
        if any(map(is_code, files)) and "CHANGELOG.md" not in files:
            yield f"the code changed since {base}, but CHANGELOG.md did not."


def main(arguments: list[str]) -> int:
    """Checks the changelog; returns the exit status."""
    parser = argparse.ArgumentParser(description="Checks CHANGELOG.md.")
    here = Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=Path, default=here)
    parser.add_argument("--base", help="a revision whose changes need an entry")
    options = parser.parse_args(arguments)
    text = (options.root / "CHANGELOG.md").read_text(encoding="utf-8")
    problems = [*check_form(text), *check_content(options.root, text, options.base)]
    for problem in problems:
        print(f"CHANGELOG.md: {problem}")
    if not problems:
        print("changelog: in form, and the unreleased changes are told")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
