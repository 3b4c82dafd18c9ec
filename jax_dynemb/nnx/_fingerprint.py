# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What a Module is made of, in a form that is quick to take and to compare."""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.tree_util import default_registry

_BY_VALUE = {int, float, bool, complex, str, bytes, type(None)}


class LooseArray(Exception):
    """A Module holds an array that no Variable wraps."""


class Fingerprint:
    """The parts of some Modules: their types, names, values, and which are one object.

    Arrays of Variables are not looked at, and what is compared keeps no Module and no
    Variable alive. What else is not a container is held, and compared by identity, or
    by value if it is a number or a string.

    Attributes:
      variables: the Variables, each once; see ``without_variables``.
    """

    def __init__(self, nodes: Sequence[Any]):
        """Takes the fingerprint.

        Args:
          nodes: Modules, Optimizers and Variables.

        Raises:
          LooseArray: it would have to compare arrays.
        """
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
        return other

    def matches(self, other: Fingerprint) -> bool:
        """Returns whether both are made of the same parts."""
        return (
            self._tokens == other._tokens
            and len(self._held) == len(other._held)
            and all(map(operator.is_, self._held, other._held))
        )

    def _add(self, x: Any) -> None:
        kind = type(x)
        if kind in _BY_VALUE:
            self._tokens.append(x)
        elif issubclass(kind, nnx.Pytree):
            if self._add_object(x):
                self._add_items(vars(x))
        elif issubclass(kind, nnx.Variable):
            if self._add_object(x):
                self.variables.append(x)
                self._add_items(x.get_metadata())
        elif issubclass(kind, dict):
            self._tokens.append(kind)
            self._add_items(x)
        elif issubclass(kind, tuple | list):
            self._tokens += (kind, len(x))
            for each in x:
                self._add(each)
        elif issubclass(kind, np.ndarray) or isinstance(x, jax.Array):
            raise LooseArray
        elif (flat := default_registry.flatten_one_level(x)) is not None:
            children, structure = flat
            self._tokens += (kind, structure)
            for each in children:
                self._add(each)
        else:
            self._held.append(x)

    def _add_object(self, x: Any) -> bool:
        """Returns whether it is seen for the first time."""
        new = id(x) not in self._seen
        self._tokens += (self._seen.setdefault(id(x), len(self._seen)), type(x))
        return new

    def _add_items(self, items: dict[Any, Any]) -> None:
        self._tokens.append(len(items))
        for name, value in items.items():
            self._tokens.append(name)
            self._add(value)
