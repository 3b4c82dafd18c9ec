# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The short way from a call on Modules to its compiled program.

``nnx.jit`` takes its Modules apart and puts them together again at every call, which
takes longer than many a step. Here that is done once: what a call needs are the values
of the Variables, as long as the Modules are made of the same parts, and whether they
are is seen from a fingerprint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx

from jax_dynemb.nnx._fingerprint import Fingerprint
from jax_dynemb.nnx._variable import (
    graph_nodes,
    is_graph_node,
    iter_variables,
    writable,
)

Variables = list[nnx.Variable[Any]]
_PLAIN = {int, float, bool, complex, type(None), np.ndarray}


class NotShort(Exception):
    """The function does what only ``nnx.jit`` can do, e.g. it returns a Module."""


class Call:
    """The arguments of a call, its Modules apart from the rest."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]):
        self.nodes: list[Any] = []
        self.places: list[int | str] = []
        self.rest = [self._rest(i, x) for i, x in enumerate(args)]
        self.named = {name: self._rest(name, x) for name, x in kwargs.items()}

    def _rest(self, place: int | str, x: Any) -> Any:
        if type(x) in _PLAIN or not is_graph_node(x):
            return x
        self.nodes.append(x)
        self.places.append(place)
        return None

    def is_short(self) -> bool:
        """Returns whether it has Modules, and none inside another argument."""
        return bool(self.nodes) and _is_plain(self.rest) and _is_plain(self.named)


class Program:
    """A function of Modules as a jitted function of the values of their Variables."""

    def __init__(
        self,
        fun: Callable[..., Any],
        places: Sequence[int | str],
        graphdef: Any,
        abstract: Any,
        donated: Sequence[bool],
    ):
        """Jits; nothing is traced yet.

        Args:
          fun: the function.
          places: positions or names of its Modules.
          graphdef: of all its Modules, from ``nnx.split``.
          abstract: their state without arrays.
          donated: of each Variable, whether its arrays are.
        """
        self._fun, self._places, self._donated = fun, places, donated
        self._graphdef, self._abstract = graphdef, abstract
        self._jitted = jax.jit(self._on_values, donate_argnums=0)

    def run(self, variables: Variables, call: Call) -> Any:
        """Returns what the function returns; the Variables have their new values."""
        out, values = self._jitted(*self._parted(variables), call.rest, call.named)
        for variable, value in zip(variables, values, strict=True):
            variable.set_raw_value(value)
        return out

    def lower(self, variables: Variables, call: Call) -> Any:
        """Lowers for a call, see ``jax.jit(...).lower``."""
        return self._jitted.lower(*self._parted(variables), call.rest, call.named)

    def _parted(self, variables: Variables) -> tuple[list[Any], list[Any]]:
        """The values, those that are donated apart from the others."""
        parts: tuple[list[Any], list[Any]] = ([], [])
        for variable, donated in zip(variables, self._donated, strict=True):
            parts[0 if donated else 1].append(variable.get_raw_value())
        return parts

    def _on_values(self, given: Any, kept: Any, rest: Any, named: Any) -> Any:
        # A mapped copy has Variables of its own, which belong to this trace.
        nodes = nnx.merge(self._graphdef, jax.tree.map(lambda x: x, self._abstract))
        variables = list(iter_variables(nodes))
        parts = iter(given), iter(kept)
        for variable, donated in zip(variables, self._donated, strict=True):
            variable.set_raw_value(next(parts[0 if donated else 1]))
        args: list[Any] = list(rest)
        kwargs: dict[str, Any] = dict(named)
        for place, node in zip(self._places, nodes, strict=True):
            if isinstance(place, int):
                args[place] = node
            else:
                kwargs[place] = node
        out = self._fun(*args, **kwargs)
        if graph_nodes(out) or nnx.graphdef(nodes) != self._graphdef:
            raise NotShort
        return out, [variable.get_raw_value() for variable in variables]


class Binding:
    """The program for Modules of certain parts; it keeps none of them alive."""

    def __init__(
        self, nodes: Sequence[Any], fingerprint: Fingerprint, program: Program
    ):
        """Remembers in which order the program takes the Variables."""
        self.program = program
        places = {id(v): i for i, v in enumerate(fingerprint.variables)}
        self._order = [places[id(v)] for v in iter_variables(nodes)]
        self._fingerprint = fingerprint.without_variables()

    def fits(self, fingerprint: Fingerprint) -> bool:
        """Returns whether the program is the one for these Modules."""
        return self._fingerprint.matches(fingerprint)

    def variables(self, fingerprint: Fingerprint) -> Variables:
        """Returns the Variables of Modules that fit."""
        return [fingerprint.variables[i] for i in self._order]


def split(nodes: Sequence[Any]) -> tuple[Any, Any]:
    """Returns the graphdef of some Modules, and their state without arrays."""
    graphdef, state = nnx.split(tuple(nodes))
    return graphdef, jax.eval_shape(lambda: state)


def are_writable(variables: Variables) -> bool:
    """Returns whether the running code may write to them; they share one trace."""
    return not variables or writable(variables[0])


def _is_plain(x: Any) -> bool:
    kind = type(x)
    if kind in _PLAIN:
        return True
    if kind is tuple or kind is list:
        return all(map(_is_plain, x))
    if kind is dict:
        return all(map(_is_plain, x.values()))
    return isinstance(x, jax.Array) or not graph_nodes(x)
