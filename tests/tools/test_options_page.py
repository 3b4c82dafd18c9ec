# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""docs/migration/options.md is what tools/options_page.py makes of its list."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_current():
    made = runpy.run_path(str(ROOT / "tools/options_page.py"))["page"]()
    page = (ROOT / "docs/migration/options.md").read_text(encoding="utf-8")
    assert page == made, "run python tools/options_page.py"
