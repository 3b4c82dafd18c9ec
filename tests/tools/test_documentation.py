# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The code in README.md and docs/ runs; every public name is in docs/api."""

import re
import types
from pathlib import Path

import pytest

import jax_dynemb as jde

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def code_of(page: Path) -> str:
    """Returns the page's Python blocks, each on the lines where the page has it."""
    text = page.read_text(encoding="utf-8")
    lines = [""] * text.count("\n")
    for match in BLOCK.finditer(text):
        first = text[: match.start(1)].count("\n")
        block = match[1].splitlines()
        lines[first : first + len(block)] = block
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if code_of(page).strip()],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_code_blocks_run(page):
    exec(compile(code_of(page), str(page), "exec"), {"__name__": "page"})


# Modules whose page shows everything that they define; packages that only collect names
# are listed name by name.
WHOLE_MODULES = {"initializers", "testing"}
COLLECTIONS = {
    "checkpoint",
    "export",
    "import_",
    "lifecycle",
    "metrics",
    "nnx",
    "optim",
    "stores",
    "torchrec",
}


def public_names(module: types.ModuleType) -> set[str]:
    """The names that a package shows, without submodules that Python binds to it."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }


def test_every_public_name_is_on_a_page():
    pages = "\n".join(
        page.read_text(encoding="utf-8") for page in (ROOT / "docs/api").glob("*.md")
    )
    shown = set(re.findall(r"^::: jax_dynemb\.([\w.]+)", pages, re.MULTILINE))
    expected = public_names(jde) | WHOLE_MODULES
    for collection in COLLECTIONS:
        names = public_names(getattr(jde, collection))
        expected |= {f"{collection}.{name}" for name in names}
    missing = expected - shown
    assert not missing, f"add '::: jax_dynemb.NAME' to a page of docs/api: {missing}"
