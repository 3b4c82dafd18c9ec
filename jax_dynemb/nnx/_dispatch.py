# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The short way from a call on Modules to its compiled program.

``nnx.jit`` takes its Modules apart and puts them together again at every call, which
takes longer than many a step. Here that is done once: what a call needs are the values
of the Variables, as long as the Modules are made of the same parts, and whether they
are is seen from a fingerprint.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.core import Tracer

from jax_dynemb._compiler_options import compiler_options
from jax_dynemb.nnx._fingerprint import Fingerprint
from jax_dynemb.nnx._variable import (
    Reads,
    Table,
    assign,
    graph_nodes,
    is_graph_node,
    iter_variables,
    reads,
    writable,
)

Variables = list[nnx.Variable[Any]]
_PLAIN = {int, float, bool, complex, type(None), np.ndarray}


class _Otherwise(Exception):
    """The trace that was stopped here would have given away the wrong Variables."""


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
    """A function of Modules as a jitted function of the values of their Variables.

    Where it leaves tables as they are, as an evaluation does, they and all else that
    stays are not given away and not returned: arrays that go in and out are what a call
    costs. Which these are is known at the end of a trace, which is repeated then.
    """

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
        self._only_read: set[int] = set()  # in every trace so far
        self._is_traced = False
        jit = functools.partial(jax.jit, self._on_values, donate_argnums=0)
        self._outermost = jit(compiler_options=compiler_options())
        self._inner = jit()  # JAX takes options in the outermost jit only

    def run(self, variables: Variables, call: Call) -> Any:
        """Returns what the function returns; the Variables have their new values."""
        jitted = self._jitted_for(variables)
        out, values = self._until_known(jitted, variables, call)
        if not values:
            return out
        if self._only_read:
            variables = [v for i, v in enumerate(variables) if i not in self._only_read]
        assign(variables, values)
        return out

    def lower(self, variables: Variables, call: Call) -> Any:
        """Lowers for a call, see ``jax.jit(...).lower``."""
        return self._until_known(self._jitted_for(variables).lower, variables, call)

    def _jitted_for(self, variables: Variables) -> Any:
        values = jax.tree.leaves(variables[0].get_raw_value()) if variables else []
        stands_inside = not values or isinstance(values[0], Tracer)
        return self._inner if stands_inside else self._outermost

    def _until_known(
        self, function: Callable[..., Any], variables: Variables, call: Call
    ) -> Any:
        while True:
            try:
                return function(*self._parted(variables), call.rest, call.named)
            except _Otherwise:
                continue

    def _parted(self, variables: Variables) -> tuple[list[Any], list[Any]]:
        """The values, those that are donated apart from the others."""
        parts: tuple[list[Any], list[Any]] = ([], [])
        for variable, part in zip(variables, self._part, strict=True):
            parts[part].append(variable.get_raw_value())
        return parts

    @functools.cached_property
    def _part(self) -> list[int]:
        """For each Variable 0 if it is donated, else 1."""
        kept = self._only_read
        return [int(not d or i in kept) for i, d in enumerate(self._donated)]

    def _on_values(self, given: Any, kept: Any, rest: Any, named: Any) -> Any:
        # A mapped copy has Variables of its own, which belong to this trace.
        nodes = nnx.merge(self._graphdef, jax.tree.map(lambda x: x, self._abstract))
        variables = list(iter_variables(nodes))
        parts = iter(given), iter(kept)
        before = [next(parts[part]) for part in self._part]
        for variable, value in zip(variables, before, strict=True):
            variable.set_raw_value(value)
        token = reads.set(noted := Reads())
        try:
            out = self._call(nodes, rest, named)
        finally:
            reads.reset(token)
        values = [variable.get_raw_value() for variable in variables]
        pairs = enumerate(zip(values, before, strict=True))
        only_read = {i for i, pair in pairs if noted.is_only_read(*pair)}
        if not any(isinstance(variables[i], Table) for i in only_read):
            only_read = set()
        self._learn(only_read)
        return out, [x for i, x in enumerate(values) if i not in self._only_read]

    def _learn(self, only_read: set[int]) -> None:
        """Takes in what a trace has shown; stops it if it was not expected."""
        expected = self._only_read
        self._only_read = expected & only_read if self._is_traced else only_read
        self._is_traced = True
        if self._only_read != expected:
            vars(self).pop("_part", None)
            raise _Otherwise

    def _call(self, nodes: Any, rest: Any, named: Any) -> Any:
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
        return out


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
        return _PLAIN.issuperset(map(type, x.values())) or all(
            map(_is_plain, x.values())
        )
    if isinstance(x, jax.Array):
        if not isinstance(x, Tracer):
            _PLAIN.add(kind)
        return True
    return not graph_nodes(x)
