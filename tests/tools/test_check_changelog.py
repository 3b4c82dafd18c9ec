# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""tools/check_changelog.py: the form, and code that changed without a word."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "check_changelog.py"

GOOD = """# Changelog

## [Unreleased]

### Added

- Something new.

## [0.2.0] - 2026-03-01

### Fixed

- Something old.

## [0.1.0] - 2026-02-01
"""


def check(root: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, str(TOOL), "--root", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True)


def commit(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_md", ".md")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "change")


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q")
    commit(tmp_path, CHANGELOG_md=GOOD, core__find="1")
    git(tmp_path, "tag", "v0.2.0")
    return tmp_path


def test_this_repository_is_in_form():
    status, output = check(ROOT)
    assert status == 0, output


def test_good_file(repository):
    assert check(repository)[0] == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("# Changelog", "# History", "start the file"),
        ("## [Unreleased]", "## [0.3.0] - 2026-04-01", "the first section"),
        ("## [0.1.0] - 2026-02-01", "## 0.1.0", "write '## [1.2.3]"),
        ("## [0.1.0] - 2026-02-01", "## [0.3.0] - 2026-02-01", "newest first"),
        ("### Fixed", "### Bugs", "the kinds of change"),
    ],
)
def test_form(repository, old, new, message):
    (repository / "CHANGELOG.md").write_text(GOOD.replace(old, new))
    status, output = check(repository)
    assert status == 1
    assert message in output


def test_changed_code_needs_an_unreleased_entry(repository):
    silent = GOOD.replace("- Something new.\n", "")
    (repository / "CHANGELOG.md").write_text(silent)
    assert check(repository)[0] == 0
    commit(repository, core__find="2")
    status, output = check(repository)
    assert status == 1
    assert "say in '[Unreleased]'" in output


def test_without_a_release_everything_is_unreleased(tmp_path):
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
    assert "say in '[Unreleased]'" in check(tmp_path)[1]


def test_base_needs_a_changed_file(repository):
    commit(repository, core__find="2")
    status, output = check(repository, "--base", "HEAD~1")
    assert status == 1
    assert "CHANGELOG.md did not" in output
    commit(repository, CHANGELOG_md=GOOD + "\n", docs__x="1")
    assert check(repository, "--base", "HEAD~2")[0] == 0
    assert check(repository, "--base", "HEAD~1")[0] == 0


def test_unknown_base_is_an_error(repository):
    status, output = check(repository, "--base", "nowhere")
    assert status == 1
    assert "nowhere" in output
