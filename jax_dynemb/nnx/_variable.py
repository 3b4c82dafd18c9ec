# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The Variable type that holds a table, and what nnx knows about where it is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
from flax import nnx
from flax.errors import TraceContextError

from jax_dynemb.ops._state import TableState


class Table(nnx.Variable[TableState]):
    """One table: its value is the ``TableState`` pytree of plain arrays.

    It is not an ``nnx.Param``, so ``nnx.Optimizer(wrt=nnx.Param)`` and ``nnx.grad``
    leave it alone, while ``nnx.state``, ``nnx.split`` and orbax see it like any other
    Variable. Select it with ``nnx.state(model, jde.nnx.Table)``.
    """


class TraceMark:
    """Tells whether the code that asks runs under the trace the mark was made in."""

    def __init__(self):
        self._variable = nnx.Variable(0)

    def here(self) -> bool:
        """Returns False inside a transformation entered since, e.g. a scan body."""
        return writable(self._variable)


def writable(variable: nnx.Variable[Any]) -> bool:
    """Returns whether nnx lets the running code write to ``variable``."""
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
    return isinstance(x, nnx.Pytree | nnx.Variable)


def iter_variables(tree: Any) -> Iterator[nnx.Variable[Any]]:
    """Yields every Variable below the graph nodes of a pytree, each once."""
    nodes = graph_nodes(tree)
    for _, node in nnx.iter_graph(nodes) if nodes else ():
        if isinstance(node, nnx.Variable):
            yield node
