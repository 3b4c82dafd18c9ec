# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Recognizes Modules that a function was called with before, by their objects.

The comparison is Python code written for their structure, as ``dataclasses`` writes
methods: a loop over the parts takes four times as long, in each call.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

from flax import nnx
from jax.tree_util import default_registry

from jax_dynemb._src.nnx.fast_path.flax import metadata_of, progress_of
from jax_dynemb._src.nnx.fast_path.parts import Part, part_of

_MOST_LINES = 5000  # of code; larger Modules are compared by fingerprints alone
_KEPT = 128  # comparisons, by their code

# Returns the Variables of nodes, or None where any part has been replaced.
Snapshot = Callable[[Sequence[Any]], "list[nnx.Variable[Any]] | None"]


def snapshot(
    nodes: Sequence[Any], variables: Sequence[nnx.Variable[Any]]
) -> Snapshot | None:
    """Returns the comparison of some Modules with what is in them now.

    It compares names, and each object by its identity. Numbers, strings and leaves are
    kept alive, so that no other object has their identity. Modules, Variables and
    containers are not: of another one at the same address, the contents differ.

    Args:
      nodes: Modules of which a fingerprint could be taken.
      variables: theirs, in the order in which the function is to return them.

    Returns:
      A function of such nodes; None for Modules of very many parts.
    """
    code = _Code()
    for i, node in enumerate(nodes):
        code.compare(node, f"nodes[{i}]")
    if len(code.lines) > _MOST_LINES:
        return None
    names = [code.names[id(variable)] for variable in variables]
    body = [*code.lines, f"return [{', '.join(names)}]"]
    made = _compiled("\n ".join(body), len(code.expected))
    return types.FunctionType(made, _NAMES, "compare", tuple(code.expected))


class _Code:
    """The body of a comparison, whose expected values are defaults of arguments.

    So Modules of one structure have the same code.
    """

    def __init__(self):
        self.lines: list[str] = []
        self.expected: list[Any] = []
        self.names: dict[int, str] = {}  # of containers, by identity

    def compare(self, x: Any, place: str) -> None:
        """Compares what is in a place with ``x``, and what is in it."""
        write = _WRITERS.get(part_of(x))
        if write is None:  # a number, a string or a leaf
            self._return_unless(f"{place} is {self._value(x)}")
        elif (known := self.names.get(id(x))) is not None:
            self._return_unless(f"{place} is {known}")
        else:
            name = self.names[id(x)] = f"x{len(self.names)}"
            self.lines.append(f"{name} = {place}")
            self._return_unless(f"id({name}) == {self._value(id(x))}")
            self._return_unless(f"type({name}) is {self._value(type(x))}")
            write(self, x, name)

    def _value(self, x: Any) -> str:
        self.expected.append(x)
        return f"e{len(self.expected) - 1}"

    def _return_unless(self, condition: str) -> None:
        self.lines.append(f"if not {condition}: return None")

    def _module(self, x: Any, name: str) -> None:
        self._mapping(vars(x), f"{name}.__dict__", name)

    def _variable(self, x: Any, name: str) -> None:
        self._mapping(metadata_of(x), f"metadata_of({name})", name)

    def _dict(self, x: Any, name: str) -> None:
        self._mapping(x, name, name)

    def _mapping(self, items: Any, place: str, name: str) -> None:
        self.lines.append(f"of_{name} = {place}")
        self._return_unless(f"[*of_{name}] == {self._value([*items])}")
        for key, value in items.items():
            self.compare(value, f"of_{name}[{self._value(key)}]")

    def _sequence(self, x: Any, name: str) -> None:
        self._return_unless(f"len({name}) == {len(x)}")
        for i, value in enumerate(x):
            self.compare(value, f"{name}[{i}]")

    def _set(self, x: Any, name: str) -> None:
        self._return_unless(f"{name} == {self._value(frozenset(x))}")

    def _node(self, x: Any, name: str) -> None:
        if (progress := progress_of(x)) is not None:
            self._return_unless(f"progress_of({name}) == {self._value(progress)}")
            return
        children, structure = default_registry.flatten_one_level(x)
        self.lines.append(f"in_{name}, kind_of_{name} = flatten({name})")
        self._return_unless(f"kind_of_{name} == {self._value(structure)}")
        self.lines.append(f"in_{name} = [*in_{name}]")
        self._sequence([*children], f"in_{name}")


_WRITERS: dict[Part, Callable[[_Code, Any, str], None]] = {
    Part.MODULE: _Code._module,
    Part.VARIABLE: _Code._variable,
    Part.DICT: _Code._dict,
    Part.SEQUENCE: _Code._sequence,
    Part.SET: _Code._set,
    Part.NODE: _Code._node,
}


_NAMES: dict[str, Any] = {
    "metadata_of": metadata_of,
    "progress_of": progress_of,
    "flatten": default_registry.flatten_one_level,
}


@functools.lru_cache(_KEPT)
def _compiled(body: str, values: int) -> types.CodeType:
    names = {**_NAMES}
    expected = "".join(f", e{i}" for i in range(values))
    exec(f"def compare(nodes{expected}):\n {body}\n", names)
    return names["compare"].__code__
