# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses the compiled program of a call by the fingerprint of its Modules."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from flax import nnx

from jax_dynemb._src.nnx.fast_path.fingerprint import Fingerprint, LooseArray
from jax_dynemb._src.nnx.fast_path.flax import in_cached_partial, writable
from jax_dynemb._src.nnx.fast_path.graph import Arguments, iter_variables
from jax_dynemb._src.nnx.fast_path.program import (
    OutdatedStructure,
    Program,
    UnsupportedByFastPath,
    Variables,
)
from jax_dynemb._src.nnx.fast_path.snapshot import Snapshot, snapshot

_MOST_BINDINGS = 16  # of the models that a function was called with last
_MOST_PATIENCE = 64  # calls with Modules that are not known, for one snapshot


class FastPath:
    """The programs of one function for the structures of its Modules."""

    def __init__(
        self,
        fun: Callable[..., Any],
        is_donated: Callable[[Any], bool],
        table: type[nnx.Variable[Any]],
    ):
        """Compiles nothing yet; a ``table`` that ``fun`` only reads is not donated."""
        # False once a trace has shown that the function needs ``nnx.jit``.
        self.is_supported = True
        self._fun, self._is_donated, self._table = fun, is_donated, table
        self._programs: dict[Any, Program] = {}
        self._changeable: list[tuple[Fingerprint, tuple[bool, ...], Program]] = []
        self._bindings: list[_Binding] = []
        self._known: dict[tuple[int | str, ...], tuple[Program, Snapshot]] = {}
        self._unknown_calls, self._patience = 0, 1

    def run(
        self,
        method: Callable[[Program, Variables, Arguments], Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[bool, Any]:
        """Calls a method of the program; returns whether it may, and the result."""
        arguments = Arguments(args, kwargs)
        try:
            while (found := self._find(arguments)) is not None:
                program, variables = found
                try:
                    return True, method(program, variables, arguments)
                except OutdatedStructure:  # nothing has run
                    self._forget(program)
        except UnsupportedByFastPath:
            self.is_supported = False
        return False, None

    def _find(self, arguments: Arguments) -> tuple[Program, Variables] | None:
        if not self.is_supported or in_cached_partial():
            return None
        if not arguments.are_supported():
            return None
        found = self._known.get(arguments.addresses)
        if found is None or (variables := found[1](arguments.nodes)) is None:
            if (found := self._fitting(arguments)) is None:
                return None
            variables = found[1]
        if variables and not writable(variables[0]):  # all belong to one trace
            raise ValueError(_FOREIGN_TRACE)
        return found[0], variables

    def _fitting(self, arguments: Arguments) -> tuple[Program, Variables] | None:
        """Finds or makes the program for Modules of such a structure."""
        try:
            fingerprint = Fingerprint([arguments.keys, *arguments.nodes])
        except LooseArray:
            return None
        for binding in self._bindings:
            if binding.fits(fingerprint):
                break
        else:
            binding = self._bind(arguments, fingerprint)
        variables = binding.variables(fingerprint)
        self._remember(arguments, binding.program, variables)
        return binding.program, variables

    def _remember(
        self, arguments: Arguments, program: Program, variables: Variables
    ) -> None:
        """Takes a snapshot, more seldom where calls hardly have the same Modules.

        It takes as long as six fingerprints: new Modules in each call share its cost.
        """
        self._unknown_calls += 1
        if self._unknown_calls < self._patience:
            return
        self._unknown_calls, self._patience = 0, min(2 * self._patience, _MOST_PATIENCE)
        if (same := snapshot(arguments.nodes, variables)) is None:
            return
        latest = {arguments.addresses: (program, same)}
        others = [each for each in [*self._known.items()] if each[0] not in latest]
        # A new dict, since another thread may read the present one.
        self._known = dict(others[1 - _MOST_BINDINGS :]) | latest

    def _bind(self, arguments: Arguments, fingerprint: Fingerprint) -> _Binding:
        graphdef, abstract = _split(arguments.nodes)
        donated_nodes = [node for node in arguments.nodes if self._is_donated(node)]
        ids = {id(variable) for variable in iter_variables(donated_nodes)}
        donated = tuple(id(v) in ids for v in iter_variables(arguments.nodes))
        structure = tuple(arguments.keys), graphdef, abstract, donated
        program = self._program(structure, fingerprint)
        binding = _Binding(arguments.nodes, fingerprint, program)
        self._bindings = [binding, *self._bindings[: _MOST_BINDINGS - 1]]
        return binding

    def _program(self, structure: Any, fingerprint: Fingerprint) -> Program:
        """Returns the program of a structure: keys, graphdef, state and donations.

        A graphdef refers to attributes such as lists, which have no hash and may
        change. Then the fingerprint identifies the program: it has their contents.
        """
        keys, graphdef, abstract, donated = structure
        make = functools.partial(
            Program, self._fun, keys, graphdef, abstract, donated, self._table
        )
        key = graphdef, keys, donated
        if _is_hashable(graphdef):
            if key not in self._programs:
                self._programs[key] = make()
            return self._programs[key]
        for known, of_known, program in self._changeable:
            if of_known == donated and known.equals(fingerprint):
                return program
        program = make(may_change=True)
        entry = fingerprint.without_variables(), donated, program
        self._changeable = [entry, *self._changeable[: _MOST_BINDINGS - 1]]
        return program

    def _forget(self, program: Program) -> None:
        self._bindings = [b for b in self._bindings if b.program is not program]
        known = [*self._known.items()]
        self._known = {at: found for at, found in known if found[0] is not program}
        self._changeable = [e for e in self._changeable if e[2] is not program]


class _Binding:
    """The program for one structure of Modules; keeps none of them alive."""

    def __init__(
        self, nodes: Sequence[Any], fingerprint: Fingerprint, program: Program
    ):
        """Remembers the order in which the program takes the Variables."""
        self.program = program
        indices = {id(v): i for i, v in enumerate(fingerprint.variables)}
        self._order = [indices[id(v)] for v in iter_variables(nodes)]
        self._fingerprint = fingerprint.without_variables()

    def fits(self, fingerprint: Fingerprint) -> bool:
        """Returns whether the program is the one for these Modules."""
        return self._fingerprint.matches(fingerprint)

    def variables(self, fingerprint: Fingerprint) -> Variables:
        """Returns the Variables of Modules that fit."""
        return [fingerprint.variables[i] for i in self._order]


def _split(nodes: Sequence[Any]) -> tuple[Any, Any]:
    """Returns the graphdef of some Modules, and their state without arrays."""
    graphdef, state = nnx.split(tuple(nodes))
    return graphdef, jax.eval_shape(lambda: state)


def _is_hashable(graphdef: Any) -> bool:
    try:
        hash(graphdef)
    except TypeError:
        return False
    return True


_FOREIGN_TRACE = (
    "jde.nnx.jit: this call stands inside another transformation (jit, scan, grad), "
    "where a model made outside cannot be written. Pass the model as an argument of "
    "that transformation (nnx.jit), or call the function there without jde.nnx.jit."
)
