# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the objects that nnx tracks by identity, in a pytree and in a call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np
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


_PLAIN = {int, float, bool, complex, type(None), np.ndarray}


class Arguments:
    """The arguments of a call, its Modules apart from the rest."""

    __slots__ = ("_are_plain", "addresses", "keys", "named", "nodes", "rest")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]):
        self.nodes: list[Any] = []  # the Modules, Optimizers and Variables
        # Of each node, its position or its name in the call.
        self.keys: list[int | str] = []
        self._are_plain = True  # the others
        self.rest: list[Any] = [*args]  # None for each node
        self.named = {**kwargs}  # None for each node
        self._take_nodes(enumerate(args), self.rest)
        if kwargs:
            self._take_nodes(kwargs.items(), self.named)
        # Equal where the same objects are given in the same places.
        self.addresses = *self.keys, *map(id, self.nodes)

    def _take_nodes(self, items: Iterable[tuple[Any, Any]], rest: Any) -> None:
        """Takes the nodes out of ``rest``; a loop, since each call pays for it."""
        for key, x in items:
            if type(x) in _PLAIN:
                continue
            if is_graph_node(x):
                self.nodes.append(x)
                self.keys.append(key)
                rest[key] = None
            elif not _is_plain(x):
                self._are_plain = False

    def are_supported(self) -> bool:
        """Returns whether there are Modules, and none inside another argument."""
        return self._are_plain and bool(self.nodes)


def _is_plain(x: Any) -> bool:
    kind = type(x)
    if kind is dict:
        x, kind = x.values(), list
    if kind is list or kind is tuple:
        return _PLAIN.issuperset(map(type, x)) or all(map(_is_plain, x))
    if kind in _PLAIN:
        return True
    if isinstance(x, jax.Array):
        if not isinstance(x, Tracer):
            _PLAIN.add(kind)
        return True
    return not graph_nodes(x)
