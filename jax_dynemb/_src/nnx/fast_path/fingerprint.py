# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Describes the structure of Modules in a form that is quick to build and compare."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Sequence
from typing import Any

from flax import nnx
from jax.core import Tracer
from jax.tree_util import default_registry

from jax_dynemb._src.nnx.fast_path.flax import metadata_of
from jax_dynemb._src.nnx.fast_path.parts import BY_VALUE, Part, part_of


class LooseArray(Exception):
    """A Module holds an array that no Variable wraps."""


class Fingerprint:
    """The parts of some Modules: their types, names, values, and which are one object.

    It reads no arrays of Variables, and keeps no Module and no Variable alive. Numbers
    and strings are compared by value. Other leaves are held and compared by identity.
    """

    def __init__(self, nodes: Sequence[Any]):
        """Takes the fingerprint; LooseArray if an array is outside of Variables."""
        # The Variables, each once; see ``without_variables``.
        self.variables: list[nnx.Variable[Any]] = []
        self._tokens: list[Any] = []
        self._held: list[Any] = []
        self._seen: dict[int, int] = {}
        for node in nodes:
            self._add(node)

    def without_variables(self) -> Fingerprint:
        """Returns one that matches the same, and keeps no arrays alive."""
        other = copy.copy(self)
        other.variables = []
        other._tokens = [dict(t) if type(t) is dict else t for t in self._tokens]
        return other

    def matches(self, other: Fingerprint) -> bool:
        """Returns whether both are made of the same parts."""
        return (
            self._tokens == other._tokens
            and len(self._held) == len(other._held)
            and all(map(operator.is_, self._held, other._held))
        )

    def equals(self, other: Fingerprint) -> bool:
        """Returns whether parts match, or are equal and cannot change."""
        return (
            self._tokens == other._tokens
            and len(self._held) == len(other._held)
            and all(map(_is_equal, self._held, other._held))
        )

    def _add(self, x: Any) -> None:
        (_ADDERS.get(type(x)) or _adder_of(x))(self, x)

    def _add_value(self, x: Any) -> None:
        self._tokens.append(x)

    def _add_object(self, x: Any) -> bool:
        """Returns whether this is the first occurrence of the object."""
        count = len(self._seen)
        number = self._seen.setdefault(id(x), count)
        self._tokens += (number, type(x))
        return number == count

    def _add_module(self, x: Any) -> None:
        if self._add_object(x):
            self._add_items(vars(x))

    def _add_variable(self, x: Any) -> None:
        if self._add_object(x):
            self.variables.append(x)
            metadata = metadata_of(x)
            if BY_VALUE.issuperset(map(type, metadata.values())):  # nearly always
                self._tokens.append(metadata)
            else:
                self._add_items(metadata)

    def _add_dict(self, x: dict[Any, Any]) -> None:
        self._tokens.append(type(x))
        self._add_items(x)

    def _add_items(self, items: dict[Any, Any]) -> None:
        tokens = self._tokens
        tokens.append(len(items))
        tokens += items
        for value in items.values():
            if type(value) in BY_VALUE:
                tokens.append(value)
            else:
                self._add(value)

    def _add_sequence(self, x: Sequence[Any]) -> None:
        self._tokens += (type(x), len(x))
        for each in x:
            self._add(each)

    def _add_set(self, x: Any) -> None:
        self._tokens += (type(x), frozenset(x))

    def _add_container(self, x: Any) -> None:
        children, structure = default_registry.flatten_one_level(x)
        self._tokens += (type(x), structure)
        for each in children:
            self._add(each)

    def _hold(self, x: Any) -> None:
        self._held.append(x)

    def _refuse(self, x: Any) -> None:
        del x
        raise LooseArray


def _is_equal(a: Any, b: Any) -> bool:
    """Compares values of objects that have a hash, and so should not change."""
    if a is b:
        return True
    try:
        return hash(a) == hash(b) and bool(a == b)
    except TypeError:
        return False


_Adder = Callable[[Fingerprint, Any], Any]


def _adder_of(x: Any) -> _Adder:
    """Returns the method that adds values of this type; cached by type."""
    adder = _BY_PART[part_of(x)]
    if not isinstance(x, Tracer):  # tracers of one type stand for different things
        _ADDERS[type(x)] = adder
    return adder


_ADDERS: dict[type, _Adder] = {}
_BY_PART: dict[Part, _Adder] = {
    Part.VALUE: Fingerprint._add_value,
    Part.MODULE: Fingerprint._add_module,
    Part.VARIABLE: Fingerprint._add_variable,
    Part.DICT: Fingerprint._add_dict,
    Part.SEQUENCE: Fingerprint._add_sequence,
    Part.SET: Fingerprint._add_set,
    Part.NODE: Fingerprint._add_container,
    Part.LEAF: Fingerprint._hold,
    Part.LOOSE_ARRAY: Fingerprint._refuse,
}
