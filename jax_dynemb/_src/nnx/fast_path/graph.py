# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the objects in a pytree that nnx tracks by identity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
from flax import nnx
from jax.core import Tracer

_is_node_type: dict[type, bool] = {}  # a cache: isinstance is slow for these types


def graph_nodes(tree: Any) -> list[Any]:
    """Returns the Modules, Optimizers and Variables of a pytree."""
    leaves = jax.tree.leaves(tree, is_leaf=is_graph_node)
    return [leaf for leaf in leaves if is_graph_node(leaf)]


def is_graph_node(x: Any) -> bool:
    """Returns whether ``x`` is a Module, an Optimizer or a Variable."""
    kind = type(x)
    if (known := _is_node_type.get(kind)) is not None:
        return known
    is_node = isinstance(x, nnx.Pytree | nnx.Variable)
    if not isinstance(x, Tracer):  # tracers of one type differ in what they stand for
        _is_node_type[kind] = is_node
    return is_node


def iter_variables(tree: Any) -> Iterator[nnx.Variable[Any]]:
    """Yields every Variable below the graph nodes of a pytree, each once."""
    nodes = graph_nodes(tree)
    for _, node in nnx.iter_graph(nodes) if nodes else ():
        if isinstance(node, nnx.Variable):
            yield node
