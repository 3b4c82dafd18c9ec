# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The Variable type that holds a table, and what nnx knows about where it is used."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from flax import nnx
from flax.errors import TraceContextError
from jax.core import Tracer

from jax_dynemb.ops import TableState


class Table(nnx.Variable[TableState]):
    """One table: its value is the ``TableState`` pytree of plain arrays.

    It is not an ``nnx.Param``, so ``nnx.Optimizer(wrt=nnx.Param)`` and ``nnx.grad``
    leave it alone, while ``nnx.state``, ``nnx.split`` and orbax see it like any other
    Variable. Select it with ``nnx.state(model, jde.nnx.Table)``.
    """

    # So that _taken_apart.py learns when one is dropped.
    __slots__ = () if hasattr(nnx.Variable, "__weakref__") else ("__weakref__",)


class TraceMark:
    """Tells whether the code that asks runs under the trace the mark was made in."""

    def __init__(self):
        self._variable = nnx.Variable(0)

    def here(self) -> bool:
        """Returns False inside a transformation entered since, e.g. a scan body."""
        return writable(self._variable)


class Reads:
    """What only reads a table leaves in its Variable, as long as one trace lasts.

    A lookup that inserts nothing returns its table for the order of calls only: what
    changes the table later in the same program waits for it. At the end of a program
    such a table is the one that was read.
    """

    def __init__(self):
        self._before: dict[int, tuple[Any, Any]] = {}

    def note(self, before: TableState, after: TableState) -> None:
        """Notes the table that a lookup was given, and the one it returned."""
        for old, new in zip(*map(jax.tree.leaves, (before, after)), strict=True):
            if new is not old:
                self._before[id(new)] = new, old

    def is_only_read(self, now: Any, given: Any) -> bool:
        """Returns whether a value is the given one, or was made of it by reads."""
        leaves, first = jax.tree.leaves(now), jax.tree.leaves(given)
        return len(leaves) == len(first) and all(map(self._same, leaves, first))

    def _same(self, leaf: Any, given: Any) -> bool:
        while leaf is not given and id(leaf) in self._before:
            leaf = self._before[id(leaf)][1]
        return leaf is given


reads: contextvars.ContextVar[Reads | None] = contextvars.ContextVar(
    "jax_dynemb_reads", default=None
)

# Without the questions and copies of Variable's own methods, where Flax has these.
_raw_value: Any = vars(nnx.Variable).get("_raw_value")
_metadata: Any = vars(nnx.Variable).get("_var_metadata")


def assign(variables: Sequence[nnx.Variable[Any]], values: Sequence[Any]) -> None:
    """Gives Variables that are known to be writable their raw values."""
    if hasattr(_raw_value, "__set__"):
        for variable, value in zip(variables, values, strict=True):
            _raw_value.__set__(variable, value)
        return
    for variable, value in zip(variables, values, strict=True):
        variable.set_raw_value(value)


def metadata_of(variable: nnx.Variable[Any]) -> dict[str, Any]:
    """Returns the metadata, not to be changed."""
    if hasattr(_metadata, "__get__"):
        return _metadata.__get__(variable)
    return variable.get_metadata()


def writable(variable: nnx.Variable[Any]) -> bool:
    """Returns whether nnx lets the running code write to ``variable``."""
    if isinstance(known := getattr(variable, "_can_update", None), bool):
        return known
    try:
        variable.set_value(variable.get_value())
    except TraceContextError:
        return False
    return True


def graph_nodes(tree: Any) -> list[Any]:
    """Returns the Modules, Optimizers and Variables that stand in a pytree."""
    leaves = jax.tree.leaves(tree, is_leaf=is_graph_node)
    return [leaf for leaf in leaves if is_graph_node(leaf)]


def is_graph_node(x: Any) -> bool:
    """Returns whether ``x`` is one of the objects that nnx tracks by identity."""
    kind = type(x)
    if (known := _graph_nodes.get(kind)) is not None:
        return known
    is_node = isinstance(x, nnx.Pytree | nnx.Variable)
    if not isinstance(x, Tracer):  # which one it stands for differs
        _graph_nodes[kind] = is_node
    return is_node


_graph_nodes: dict[type, bool] = {}  # by type, what isinstance takes long to say


def iter_variables(tree: Any) -> Iterator[nnx.Variable[Any]]:
    """Yields every Variable below the graph nodes of a pytree, each once."""
    nodes = graph_nodes(tree)
    for _, node in nnx.iter_graph(nodes) if nodes else ():
        if isinstance(node, nnx.Variable):
            yield node
