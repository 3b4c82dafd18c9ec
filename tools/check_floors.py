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
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

PACKAGE = "jax_dynemb"
INSIDE = "_src"  # of the package: all that is not for users

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
        (
            "core/",
            "cpu/",
            "cuda/launch.h",
            "cuda/exchange/launch.h",
            "cuda/exchange/shared_memory.h",
            "xla_ffi/",
            "xla/",
        ),
        DEVICE_LIBRARIES,
    ),
}
CPP_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}

# Where core/ may meet CUDA, and only inside a block for the device compiler.
CORE_EXCEPTIONS = {
    "core/atomic.h": ("cuda/atomic",),
    "core/value_type.h": ("cuda_fp16.h", "cuda_bf16.h"),
}
DEVICE_GUARDS = ("__CUDA_ARCH__", "__CUDACC__")

# Modules and folders of _src; the longest name that fits counts. A new one must be
# given its floor here.
PYTHON_FLOORS = {
    "ffi": 3,
    # Leaves: data and checks that every floor above may use.
    "cuda_module": 3,
    "checked_fields": 3,
    "checked_loops": 3,
    "compiler_options": 3,
    "dynamicemb_options": 3,
    "earlier_paths": 3,
    "former_names": 3,
    "hash_ids": 3,
    "is_whole": 3,
    "kept_jit": 3,
    "kind_of": 3,
    "names": 3,
    "ids": 3,
    "removal_options": 3,
    "score_strategy": 3,
    "scores": 3,
    "row_formats": 3,
    "seed": 3,
    "shardings": 3,
    "shown": 3,
    "table_sizes": 3,
    "spec": 3,
    "admission": 3,
    "config": 3,
    "config_dict": 3,
    "initializers": 3,
    "jagged": 3,
    "metrics": 3,
    "host_tier": 3,  # where a row lies is a part of its table's configuration
    "store_identity": 3,
    "store_tier": 3,
    "pipeline": 3,
    "optim": 3,  # how a row is updated is a part of its table's configuration
    "rows": 3,  # rows as data: engines and storage tiers stream them
    "files": 3,  # nothing; its packages have floors of their own
    "files.integrity": 3,
    "files.disk": 3,
    "stores": 3,  # rows by key: engines and storage tiers read and write them
    "ops": 4,
    "unique": 5,
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
    "one_embedding": 8,
    "torchrec": 8,
    "serving": 8,
    "commands": 8,
    "testing": 8,
    "distributed": 8,
}
# Modules that other packages may import beside the names of the package itself.
OPEN = {
    "engines.hash.exchange",
    "engines.hash.layouts",
    "nnx.interface",
    "optim.interface",
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
    tree: ast.AST, parts: list[str], package: str = f"{PACKAGE}.{INSIDE}"
) -> Iterator[tuple[int, list[str]]]:
    """Yields (line, absolute dotted name as a list) for each name imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.split(".")
        elif isinstance(node, ast.ImportFrom):
            base = node.module.split(".") if node.module else []
            if node.level:
                base = [*package.split("."), *parts[: len(parts) - node.level], *base]
            for alias in node.names:
                yield node.lineno, [*base, alias.name]


def check_python(root: Path) -> Iterator[str]:
    """Yields one sentence for each import that leaves its floor."""
    package_root = root / PACKAGE / INSIDE
    exported = {
        module_name(path, package_root): exported_names(path)
        for path in package_root.rglob("*.py")
    }
    for path in sorted(package_root.rglob("*.py")):
        parts = module_parts(path, package_root)
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        if parts != ["__init__"]:
            yield from check_module(tree, path.relative_to(root), parts, exported)


def exported_names(path: Path) -> set[str]:
    """Returns the names that a package shows; none of a module."""
    if path.name != "__init__.py":
        return set()
    body = ast.parse(path.read_text(encoding="utf-8"), str(path)).body
    imports = [node for node in body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def check_faces(root: Path) -> Iterator[str]:
    """Yields one sentence for each statement of a public module that is no import."""
    for path in sorted((root / PACKAGE).rglob("*.py")):
        name = path.relative_to(root)
        if INSIDE in name.parts or path.name in ("__main__.py", "_version.py"):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        for node in tree.body[1:] if ast.get_docstring(tree) else tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                where = f"{name}:{node.lineno}: {node.name}"
                yield f"{where}: a public module lists names; move it to {INSIDE}/."


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
    package_root = root / PACKAGE / INSIDE
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
            target = longest_prefix(imported[2:], names)
            inside = imported[:2] == [PACKAGE, INSIDE]
            if inside and own and target and own != target:
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


def check_module(
    tree: ast.AST, name: Path, parts: list[str], exported: Mapping[str, set[str]]
) -> Iterator[str]:
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
        if imported[1:2] == ["_version"]:
            continue
        if imported[1:2] != [INSIDE]:
            yield f"{where}: it is for users; import the name from {PACKAGE}.{INSIDE}."
            continue
        if hidden := hidden_module(parts, imported[2:], exported):
            yield f"{where}: '{hidden}' is private; import the name from its package."
        if target := known_module(imported[2:]):
            yield from check_edge(where, own, target)


def hidden_module(
    parts: list[str], imported: list[str], exported: Mapping[str, set[str]]
) -> str | None:
    """Returns the module of another package that an import names, if any."""
    for length in range(2, len(imported) + 1):
        package, module = imported[: length - 1], ".".join(imported[:length])
        if module not in exported or module in OPEN or module in PYTHON_FLOORS:
            continue
        is_shown = imported[length - 1] in exported.get(".".join(package), ())
        if parts[: len(package)] == package or (length == len(imported) and is_shown):
            return None
        return module
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
    checks = (check_cpp, check_python, check_faces, check_oracle, check_circles)
    violations = [violation for check in checks for violation in check(root)]
    for violation in violations:
        print(violation)
    if not violations:
        print("floors: no file uses a floor above its own")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
