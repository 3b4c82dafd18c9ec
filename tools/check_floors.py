#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that every file uses its own floor and those below, never one above.

    python tools/check_floors.py [repository root]

C++ by its ``#include`` lines, Python by its imports (those inside functions too).
Prints one line for each violation, with what to do, and exits with 1 if there is any.
The floors are told in docs/architecture.md.
"""

import ast
import dataclasses
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

PACKAGE = "jax_dynemb"

# ---- the floors ----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class CppFloor:
    """What the files of one C++ folder may include."""

    ours: tuple[str, ...]  # prefixes of our own headers
    banned: tuple[str, ...]  # prefixes of other people's headers


PYTHON_HEADERS = ("nanobind", "Python.h", "pybind11")
XLA_HEADERS = ("xla/",)
DEVICE_LIBRARIES = ("cub/", "thrust/", "cooperative_groups")
CUDA_HEADERS = ("cuda", "cooperative_groups", "cub/", "thrust/", "nv/", "nvtx3/")

CPP_FLOORS = {
    "core": CppFloor(("core/",), XLA_HEADERS + PYTHON_HEADERS + CUDA_HEADERS),
    "cpu": CppFloor(("core/", "cpu/"), XLA_HEADERS + PYTHON_HEADERS + CUDA_HEADERS),
    "cuda": CppFloor(("core/", "cuda/"), XLA_HEADERS + PYTHON_HEADERS),
    "xla_ffi": CppFloor(
        ("core/", "cpu/", "cuda/launch.h", "xla_ffi/", "xla/"), DEVICE_LIBRARIES
    ),
}
CPP_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}

# Where core/ may meet CUDA, and only inside a block for the device compiler.
CORE_EXCEPTIONS = {
    "core/atomic.h": ("cuda/atomic",),
    "core/value_type.h": ("cuda_fp16.h", "cuda_bf16.h"),
}
DEVICE_GUARDS = ("__CUDA_ARCH__", "__CUDACC__")

# Modules and folders of the package; the longest name that fits counts. A new one must
# be given its floor here.
PYTHON_FLOORS = {
    "_version": 0,
    "_ffi": 3,
    # Leaves: data and checks that every floor above may use.
    "_checked_fields": 3,
    "_compiler_options": 3,
    "_dynamicemb_options": 3,
    "_hash_ids": 3,
    "_is_whole": 3,
    "_kept_jit": 3,
    "_kind_of": 3,
    "_names": 3,
    "_ids": 3,
    "_removal_options": 3,
    "_scores": 3,
    "_row_formats": 3,
    "_seed": 3,
    "_shardings": 3,
    "_table_sizes": 3,
    "_spec": 3,
    "admission": 3,
    "config": 3,
    "initializers": 3,
    "jagged": 3,
    "metrics": 3,
    "_host_tier": 3,  # where a row lies is a part of its table's configuration
    "_store_identity": 3,
    "_store_tier": 3,
    "pipeline": 3,
    "optim": 3,  # how a row is updated is a part of its table's configuration
    "rows": 3,  # rows as data: engines and storage tiers stream them
    "files": 3,  # nothing; its packages have floors of their own
    "files.integrity": 3,
    "files.disk": 3,
    "stores": 3,  # rows by key: engines and storage tiers read and write them
    "ops": 4,
    "engines": 5,
    "engines.shard": 5,
    "engines.hash": 5,
    "engines.tensor_train": 5,
    "tt": 5,
    "table": 6,
    "planner": 7,
    "lifecycle": 7,
    "tiers": 7,  # moves rows between tables and stores while they are trained
    "nnx": 8,
    "files.live": 8,
    "files.checkpoint": 8,
    "files.dynamicemb": 8,
    "files.fbgemm": 8,
    "files.parquet": 8,
    "files.program": 8,
    "files.safetensors": 8,
    "files.stores": 8,
    "nnx.fast_path": 8,
    "torchrec": 8,
    "checkpoint": 8,
    "export": 8,
    "import_": 8,
    "commands": 8,
    "testing": 8,
    "distributed": 8,
    "__main__": 9,
    "__init__": 9,
}
# The tests' oracle stands beside the floors: it shares no code with what it checks.
ORACLE = "tests/oracle"

# Other people's packages that must stay on the upper floors.
LOWEST_FLOOR_OF = {"flax": 8}

# ---- C++ -----------------------------------------------------------------------------

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
CONDITION = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)")


def includes(path: Path) -> Iterator[tuple[int, str, str, bool]]:
    """Yields (line, ``<`` or ``"``, header, whether inside a device-only block)."""
    conditions: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := CONDITION.match(line):
            word, rest = match.groups()
            if word in ("endif", "else", "elif") and conditions:
                conditions.pop()
            if word != "endif":
                conditions.append("" if word in ("ifndef", "else") else rest)
        elif match := INCLUDE.match(line):
            device = any(guard in c for c in conditions for guard in DEVICE_GUARDS)
            yield number, match[1], match[2], device


def check_cpp(root: Path) -> Iterator[str]:
    """Yields one sentence for each include that leaves its floor."""
    for folder, floor in CPP_FLOORS.items():
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in CPP_SUFFIXES:
                yield from check_cpp_file(path, path.relative_to(root), folder, floor)


def check_cpp_file(
    path: Path, name: Path, folder: str, floor: CppFloor
) -> Iterator[str]:
    """Yields the violations of one file."""
    exceptions = CORE_EXCEPTIONS.get(name.as_posix(), ())
    for line, bracket, header, device in includes(path):
        where = f"{name}:{line}: #include of {header}"
        if header in exceptions:
            if not device:
                yield f"{where}: put it inside #if defined({DEVICE_GUARDS[1]})."
        elif bracket == '"':
            if not header.startswith(floor.ours):
                allowed = ", ".join(floor.ours)
                yield f"{where}: {folder}/ may include {allowed}, from the root."
            elif folder == "xla_ffi" and header.endswith(".cuh"):
                yield f"{where}: kernels are reached through cuda/launch.h only."
        elif header.startswith(floor.banned):
            yield f"{where}: {folder}/ must never see it; move the code up a floor."


# ---- Python --------------------------------------------------------------------------


def module_parts(path: Path, package_root: Path) -> list[str]:
    """Returns a file's dotted name below the package: ``["table", "_state"]``."""
    return list(path.relative_to(package_root).with_suffix("").parts)


def imported_names(
    tree: ast.AST, parts: list[str], package: str = PACKAGE
) -> Iterator[tuple[int, list[str]]]:
    """Yields (line, absolute dotted name as a list) for each name imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.split(".")
        elif isinstance(node, ast.ImportFrom):
            base = node.module.split(".") if node.module else []
            if node.level:
                base = [package, *parts[: len(parts) - node.level], *base]
            for alias in node.names:
                yield node.lineno, [*base, alias.name]


def check_python(root: Path) -> Iterator[str]:
    """Yields one sentence for each import that leaves its floor."""
    package_root = root / PACKAGE
    for path in sorted(package_root.rglob("*.py")):
        parts = module_parts(path, package_root)
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        yield from check_module(tree, path.relative_to(root), parts)


def check_oracle(root: Path) -> Iterator[str]:
    """Yields one sentence for each import of the package by the oracle."""
    for path in sorted((root / ORACLE).glob("_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        for line, imported in imported_names(tree, [path.stem], "oracle"):
            if imported[0] == PACKAGE:
                where = f"{path.relative_to(root)}:{line}"
                yield f"{where}: the oracle shares no code with what it checks."


def check_circles(root: Path) -> Iterator[str]:
    """Yields one sentence for each circle of imports, of packages or of modules."""
    package_root = root / PACKAGE
    files = {module_name(p, package_root) for p in package_root.rglob("*.py")}
    for names in (set(PYTHON_FLOORS), files):
        edges = import_edges(package_root, names)
        for own in sorted(edges):
            for target in sorted(reached_from(edges, own)):
                if own < target and own in reached_from(edges, target):
                    both = f"'{own}' and '{target}'"
                    yield f"{both} import each other; move what both use."


def import_edges(package_root: Path, names: set[str]) -> dict[str, set[str]]:
    """Returns which of the named modules or packages each of them imports."""
    edges: dict[str, set[str]] = {}
    for path in sorted(package_root.rglob("*.py")):
        parts = module_parts(path, package_root)
        own = longest_prefix(module_name(path, package_root).split("."), names)
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        for _, imported in imported_names(tree, parts):
            target = longest_prefix(imported[1:], names)
            if imported[0] == PACKAGE and own and target and own != target:
                edges.setdefault(own, set()).add(target)
    return edges


def module_name(path: Path, package_root: Path) -> str:
    """Returns how imports name a file, below the package: ``table``, ``table._x``."""
    return ".".join(module_parts(path, package_root)).removesuffix(".__init__")


def reached_from(edges: dict[str, set[str]], start: str) -> set[str]:
    """Returns the modules that a module imports, through others too."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for target in edges.get(waiting.pop(), set()) - reached:
            reached.add(target)
            waiting.append(target)
    return reached


def known_module(parts: list[str]) -> str | None:
    """Returns the longest dotted prefix that has a floor."""
    return longest_prefix(parts, PYTHON_FLOORS)


def longest_prefix(parts: list[str], names: Collection[str]) -> str | None:
    """Returns the longest dotted prefix that is one of ``names``."""
    dotted = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in dotted if name in names), None)


def check_module(tree: ast.AST, name: Path, parts: list[str]) -> Iterator[str]:
    """Yields the violations of one module."""
    own = known_module(parts)
    if own is None:
        module = parts[0]
        yield f"{name}:1: '{module}' has no floor yet; give it one in check_floors.py."
        return
    for line, imported in imported_names(tree, parts):
        where = f"{name}:{line}: import of {'.'.join(imported)}"
        if imported[0] != PACKAGE:
            lowest = LOWEST_FLOOR_OF.get(imported[0])
            if lowest is not None and PYTHON_FLOORS.get(own, 0) < lowest:
                yield f"{where}: {imported[0]} is for floor {lowest} and above."
            continue
        if hidden := hidden_module(parts, imported[1:]):
            yield f"{where}: '{hidden}' is private; import the name from its package."
        # What is no module is one of the names that the package itself shows.
        yield from check_edge(where, own, known_module(imported[1:]) or "__init__")


def hidden_module(parts: list[str], imported: list[str]) -> str | None:
    """Returns the private module of another package that an import names, if any."""
    for length in range(2, len(imported) + 1):
        package, module = imported[: length - 1], imported[:length]
        public = not module[-1].startswith("_") or module[-1].startswith("__")
        if public or ".".join(module) in PYTHON_FLOORS:
            continue
        if parts[: len(package)] == package:
            return None
        return ".".join(module)
    return None


def check_edge(where: str, own: str, target: str) -> Iterator[str]:
    """Yields a sentence if the module ``own`` must not import the module ``target``."""
    if own == target:
        return
    if PYTHON_FLOORS[target] > PYTHON_FLOORS[own]:
        yield (
            f"{where}: '{own}' is on floor {PYTHON_FLOORS[own]}, '{target}' on floor"
            f" {PYTHON_FLOORS[target]}; pass the value in, or move the code down."
        )


def main(arguments: list[str]) -> int:
    """Checks the repository; returns the exit status."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    checks = (check_cpp, check_python, check_oracle, check_circles)
    violations = [violation for check in checks for violation in check(root)]
    for violation in violations:
        print(violation)
    if not violations:
        print("floors: no file uses a floor above its own")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
