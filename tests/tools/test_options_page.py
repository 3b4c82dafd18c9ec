# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""docs/migration/options.md is what tools/options_page.py makes of its list."""

import re
import runpy
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_current():
    made = runpy.run_path(str(ROOT / "tools/options_page.py"))["page"]()
    page = (ROOT / "docs/migration/options.md").read_text(encoding="utf-8")
    assert page == made, "run python tools/options_page.py"


def test_tests_walk_every_list():
    """Each is parametrised by all options of a call, so no line is without a test."""
    text = (ROOT / "docs/migration/options.toml").read_text(encoding="utf-8")
    walked: set[str] = set()
    for path in (ROOT / "tests").glob("*/test_*.py"):
        walked |= set(re.findall(r'options_of\("(\w+)"\)', path.read_text("utf-8")))
    assert walked == tomllib.loads(text).keys()
