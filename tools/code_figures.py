#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/decisions/code_figures.md: how large the code is, and what a call enters.

    python tools/code_figures.py

Needs the package with its kernels, since it traces lookups and updates on the CPU.
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "jax_dynemb"
PAGE = ROOT / "docs/decisions/code_figures.md"
SINGLE = "single files"

# Of commit 08560b49, before hash tables had one engine. Walks are those of a lookup.
LINES_BEFORE = {
    "commands": 564,
    "engines": 12050,
    "files": 8537,
    "lifecycle": 920,
    "metrics": 485,
    "nnx": 2961,
    "ops": 4786,
    "optim": 2262,
    "planner": 2753,
    "reference": 1886,
    "rows": 484,
    "single files": 3885,
    "stores": 2095,
    "table": 3415,
    "tiers": 1265,
    "torchrec": 4484,
    "tt": 1958,
}
WALKS_BEFORE = {"one device": "118, 34, 11", "tier": "149", "tensor train": "99"}

HEAD = """# Figures of the code

`tools/code_figures.py` writes this page. "Before" is the code of 2026-11-26, when each
layout of hash tables had an engine of its own. It had fewer features.

## Lines of Python

"Code" leaves out blank lines, comments and docstrings. The aim was below 50,000 lines,
for the features of then. New packages, and features in files, TorchRec's names and
tables, came since. No function is named only where it stands, but for public ones. Runs
of six equal lines stand twice in 78 pairs of places. These are imports, signatures and
docstrings of alike calls. Nothing else to delete has been found.
"""
WALK = """
## What a call enters

A call is traced on a CPU, once its specs are known. A function counts once, and "stack"
is how many are on the stack when the first kernel is called.
"""
REST = """
## The rest

Packages and modules import each other in {circles} circles (`tools/check_floors.py`).
Three packages did before. A new option of a table stands in `config.py`, and where
kernels read it in `ops/attributes.py` and `xla_ffi/schema.h`. It touched about seven
files before. `tests/table/test_options.py` finds an option that nothing passes on.
"""


# ---- lines ---------------------------------------------------------------------------


def package_of(path: Path) -> str:
    """Names the package of a file inside of the library."""
    parts = path.relative_to(PACKAGE).parts
    inner = parts[1:] if parts[0] == "_src" else parts
    return inner[0] if len(inner) > 1 else SINGLE


def lines_of(path: Path) -> tuple[int, int]:
    """Counts the lines of a file, and those of code."""
    text = path.read_text(encoding="utf-8")
    with path.open("rb") as source:
        code = {
            line
            for token in tokenize.tokenize(source.readline)
            if token.type not in _NO_CODE
            for line in range(token.start[0], token.end[0] + 1)
        }
    code -= set(_docstring_lines(ast.parse(text)))
    return text.count("\n"), len(code)


_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_WITH_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, _WITH_DOCSTRINGS) and ast.get_docstring(node) is not None:
            first = node.body[0]
            yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def line_table() -> list[str]:
    """Makes the table of lines by package, the largest first."""
    lines, code = Counter[str](), Counter[str]()
    for path in PACKAGE.rglob("*.py"):
        name, (every, own) = package_of(path), lines_of(path)
        lines[name] += every
        code[name] += own
    rows = [(name, n, code[name]) for name, n in lines.most_common()]
    rows.append(("all", lines.total(), code.total()))
    before = LINES_BEFORE | {"all": sum(LINES_BEFORE.values())}
    head = ["| package | lines | of code | lines before |", "|---|---|---|---|"]
    return head + [
        f"| {_quoted(name)} | {every:,} | {own:,} | {before.get(name, 0):,} |"
        for name, every, own in rows
    ]


def _quoted(name: str) -> str:
    return name if name in ("all", SINGLE) else f"`{name}`"


# ---- walks ---------------------------------------------------------------------------


class Walk:
    """Notes what of the library a call enters.

    Attributes:
      functions: file and name of each function.
      stack: how many were on the stack when the first kernel was called.
    """

    def __init__(self) -> None:
        from jax_dynemb._src import ffi

        self.functions: set[tuple[str, str]] = set()
        self.stack = 0
        self._kernel = ffi.call.__code__

    def __call__(self, frame: Any, event: str, arg: Any) -> None:
        """Takes an event of ``sys.setprofile``."""
        del arg
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(PACKAGE)):
            return
        if not code.co_qualname.endswith("comp>") and "genexpr" not in code.co_qualname:
            self.functions.add((code.co_filename, code.co_qualname))
        if code is self._kernel and not self.stack:
            while frame is not None:
                self.stack += frame.f_code.co_filename.startswith(str(PACKAGE))
                frame = frame.f_back

    @property
    def figures(self) -> str:
        """Says how many functions, files and frames there were."""
        files = {file for file, _ in self.functions}
        return f"{len(self.functions)}, {len(files)}, {self.stack}"


def walked(call: Callable[..., Any], *args: Any) -> tuple[Walk, Any]:
    """Traces a call twice, and notes what the second time enters."""
    import jax

    # JAX keeps what it has traced of a function, of those inside too.
    result, walk = jax.eval_shape(lambda *args: call(*args), *args), Walk()
    jax.clear_caches()
    sys.setprofile(walk)
    try:
        jax.eval_shape(lambda *args: call(*args), *args)
    finally:
        sys.setprofile(None)
    return walk, result


def walk_table() -> list[str]:
    """Makes the table of what lookups and updates enter."""
    import jax

    import jax_dynemb as jde

    sgd, mesh = jde.optim.sgd(0.1), jax.make_mesh((2,), ("d",))
    plain = jde.TableConfig("t", 8, 1024, optimizer=sgd)
    tier = jde.tiers.host(hbm_fraction=0.5)
    tiered = jde.TableConfig("t", 8, 4096, optimizer=sgd, tier=tier)
    train = jde.TTConfig("t", 8, 1000, (4, 4), optimizer=sgd)
    kinds = {
        "one device": jde.Tables([plain]),
        "mesh": jde.Tables([plain], mesh=mesh, axis="d"),
        "tier": jde.Tables([tiered]),
        "tensor train": jde.Tables([train]),
    }
    rows = [
        "| functions, files, stack of | a lookup | an update | a lookup before |",
        "|---|---|---|---|",
    ]
    for name, coll in kinds.items():
        state, ids = coll.init(0), {"t": jde.ids(list(range(8)))}
        lookup, (found, residual, _) = walked(coll.lookup, state, ids)
        update, _ = walked(coll.apply_gradients, state, residual, found)
        before = WALKS_BEFORE.get(name, "not counted")
        rows.append(f"| {name} | {lookup.figures} | {update.figures} | {before} |")
    return rows


def page() -> str:
    """Makes the page."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tools")]
    import jax
    from check_floors import check_circles

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 2)
    rest = REST.format(circles=len(list(check_circles(ROOT))))
    return "\n".join([HEAD, *line_table(), WALK, *walk_table(), rest])


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
