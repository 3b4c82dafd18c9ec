# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A function of Modules, compiled as a function of the values of their Variables."""

from __future__ import annotations

import contextvars
import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
from flax import nnx
from jax.core import Tracer

from jax_dynemb._src.compiler_options import compiler_options
from jax_dynemb._src.nnx.fast_path.fingerprint import Fingerprint
from jax_dynemb._src.nnx.fast_path.flax import assign, raw_values
from jax_dynemb._src.nnx.fast_path.graph import Arguments, graph_nodes, iter_variables
from jax_dynemb._src.nnx.fast_path.recorded_loops import (
    has_recordable_loops,
    may_gain,
)
from jax_dynemb._src.ops import TableState

Variables = list[nnx.Variable[Any]]


class UnsupportedByFastPath(Exception):
    """The function does what only ``nnx.jit`` can do, e.g. it returns a Module."""


class OutdatedStructure(Exception):
    """An attribute of the structure, such as a list, has changed since."""


class UnknownLoops(Exception):
    """A trace for a program with recorded loops, of which the loops are not known."""


class RetraceNeeded(Exception):
    """The set of read-only Variables, which are not donated, has changed."""


class Program:
    """A jitted function of the values of Variables.

    Where the function only reads tables, as an evaluation does, all Variables that it
    only reads are neither donated nor returned: a call pays for each array in and out.
    The end of a trace shows which ones these are; then the function is traced again.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        keys: Sequence[int | str],
        graphdef: Any,
        abstract: Any,
        donated: Sequence[bool],
        table: type[nnx.Variable[Any]],
        *,
        may_change: bool = False,
    ):
        """Jits; nothing is traced yet.

        ``keys`` are positions or names of the Modules, ``graphdef`` is of all of them,
        and ``abstract`` their state without arrays. ``donated`` says so of each
        Variable.
        """
        self._fun, self._keys, self._donated = fun, keys, donated
        self._graphdef, self._abstract, self._table = graphdef, abstract, table
        self._structure = self._fingerprint(self._merged()) if may_change else None
        self._only_read: set[int] = set()  # in every trace so far
        self._is_traced = False
        jit = functools.partial(jax.jit, self._on_values, donate_argnums=0)
        self._plain = jit(compiler_options=compiler_options())
        self._recorded = jit(compiler_options=compiler_options(loops=True))
        self._inner = jit()  # JAX takes options in the outermost jit only
        self._outermost = self._plain
        self._is_known = True  # what loops the next trace will have

    def call(self, variables: Variables, arguments: Arguments) -> Any:
        """Returns what the function returns; the Variables have their new values."""
        out, values = self._until_stable(variables, arguments)
        if not values:
            return out
        if self._only_read:
            variables = [v for i, v in enumerate(variables) if i not in self._only_read]
        assign(variables, values)
        return out

    def lower(self, variables: Variables, arguments: Arguments) -> Any:
        """Lowers for a call, see ``jax.jit(...).lower``."""
        return self._until_stable(variables, arguments, operator.attrgetter("lower"))

    def _jitted_for(self, variables: Variables) -> Any:
        first = _first_array(variables)
        if first is None or isinstance(first, Tracer):
            self._is_known = True
            return self._inner
        if not self._is_traced and may_gain([v.get_raw_value() for v in variables]):
            self._outermost = self._recorded
        self._is_known = self._outermost is self._plain
        return self._outermost

    def _until_stable(
        self,
        variables: Variables,
        arguments: Arguments,
        way: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Traces until the read-only Variables, and the loops, are the expected ones.

        Args:
          variables: of the Modules.
          arguments: of the call.
          way: what to call of a jitted function; itself by default.
        """
        jitted = self._jitted_for(variables)
        rest, named = arguments.rest, arguments.named
        while True:
            donated, kept = self._by_donation(variables)
            call = jitted if way is None else way(jitted)
            try:
                return call(donated, kept, rest, named)
            except RetraceNeeded:
                self._is_known = jitted is not self._recorded
            except UnknownLoops:
                jitted = self._after_a_look(donated, kept, rest, named)

    def _after_a_look(self, donated: Any, kept: Any, rest: Any, named: Any) -> Any:
        """Traces without recorded loops; returns the function to call.

        JAX traces a function once for all that are jitted from it.
        """
        self._is_known = True
        try:
            traced = self._plain.trace(donated, kept, rest, named)
        except RetraceNeeded:
            self._is_known = False
            return self._outermost
        if not has_recordable_loops(traced.jaxpr.jaxpr):
            self._outermost = self._plain
        return self._outermost

    def _by_donation(self, variables: Variables) -> tuple[list[Any], list[Any]]:
        """Separates the values that are donated from the others."""
        values, kept = raw_values(variables), self._is_kept
        if False not in kept:
            return [], values
        donated = [*itertools.compress(values, map(operator.not_, kept))]
        return donated, [*itertools.compress(values, kept)]

    @functools.cached_property
    def _is_kept(self) -> list[bool]:
        """Whether each Variable keeps its arrays, since they are not donated."""
        kept = self._only_read
        return [not d or i in kept for i, d in enumerate(self._donated)]

    def _on_values(self, donated: Any, kept: Any, rest: Any, named: Any) -> Any:
        if not self._is_known:
            raise UnknownLoops
        nodes = self._merged()
        self._check_structure(nodes)
        variables = list(iter_variables(nodes))
        lists = iter(donated), iter(kept)
        before = [next(lists[is_kept]) for is_kept in self._is_kept]
        for variable, value in zip(variables, before, strict=True):
            variable.set_raw_value(value)
        token = reads.set(noted := Reads())
        try:
            out = self._run(nodes, rest, named)
        finally:
            reads.reset(token)
        values = [variable.get_raw_value() for variable in variables]
        pairs = enumerate(zip(values, before, strict=True))
        only_read = {i for i, pair in pairs if noted.is_only_read(*pair)}
        if not any(isinstance(variables[i], self._table) for i in only_read):
            only_read = set()
        self._learn(only_read)
        return out, [x for i, x in enumerate(values) if i not in self._only_read]

    def _merged(self) -> Any:
        # A mapped copy has Variables of its own, which belong to this trace.
        return nnx.merge(self._graphdef, jax.tree.map(lambda x: x, self._abstract))

    def _check_structure(self, nodes: Any) -> None:
        """Stops a trace for what the Modules of the first call no longer are."""
        if self._structure is None:
            return
        if not self._structure.matches(self._fingerprint(nodes)):
            raise OutdatedStructure

    def _fingerprint(self, nodes: Any) -> Fingerprint:
        return Fingerprint([*nodes]).without_variables()

    def _learn(self, only_read: set[int]) -> None:
        """Records what a trace has shown; stops it if it was not expected."""
        expected = self._only_read
        self._only_read = expected & only_read if self._is_traced else only_read
        self._is_traced = True
        if self._only_read != expected:
            vars(self).pop("_is_kept", None)
            raise RetraceNeeded

    def _run(self, nodes: Any, rest: Any, named: Any) -> Any:
        args: list[Any] = list(rest)
        kwargs: dict[str, Any] = dict(named)
        for key, node in zip(self._keys, nodes, strict=True):
            if isinstance(key, int):
                args[key] = node
            else:
                kwargs[key] = node
        out = self._fun(*args, **kwargs)
        if graph_nodes(out) or nnx.graphdef(nodes) != self._graphdef:
            raise UnsupportedByFastPath
        return out


def _first_array(variables: Variables) -> Any:
    """Returns an array, a tracer while something is traced, or None without any."""
    value = variables[0].get_raw_value() if variables else None
    if type(value) is TableState:  # nearly always, and flattening takes longer
        return value.index
    return next(iter(jax.tree.leaves(value)), None)


class Reads:
    """The arrays that read-only lookups returned, during one trace.

    A lookup that inserts nothing returns its table only to order the calls of a
    program: a later change of the table waits for it. A table that is only read holds
    such arrays at the end of the program.
    """

    def __init__(self):
        self._before: dict[int, tuple[Any, Any]] = {}

    def note(self, before: TableState, after: TableState) -> None:
        """Notes the table that a lookup received, and the one it returned."""
        for old, new in zip(*map(jax.tree.leaves, (before, after)), strict=True):
            if new is not old:
                self._before[id(new)] = new, old

    def is_only_read(self, now: Any, first: Any) -> bool:
        """Returns whether a value is the first one, or reads made it from that."""
        leaves, inputs = jax.tree.leaves(now), jax.tree.leaves(first)
        return len(leaves) == len(inputs) and all(map(self._same, leaves, inputs))

    def _same(self, leaf: Any, first: Any) -> bool:
        while leaf is not first and id(leaf) in self._before:
            leaf = self._before[id(leaf)][1]
        return leaf is first


reads: contextvars.ContextVar[Reads | None] = contextvars.ContextVar(
    "jax_dynemb_reads", default=None
)
