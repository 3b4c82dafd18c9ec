# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trees without an end, which JAX would follow until Python's stack is full."""

from __future__ import annotations

from typing import Any

from jax.tree_util import default_registry

from jax_dynemb._src.nnx.interface import is_graph_node

_DEEPEST = 200


def check_end(tree: Any) -> None:
    """Refuses containers that hold themselves, or nest too deep; modules may."""
    above: list[int] = []  # the containers that the present one is in
    waiting: list[tuple[int, Any]] = [(0, tree)]
    while waiting:
        depth, node = waiting.pop()
        del above[depth:]
        if is_graph_node(node):
            continue
        level = default_registry.flatten_one_level(node)
        if level is None:  # a leaf
            continue
        if id(node) in above:
            raise ValueError(
                f"A {type(node).__name__} in the tree holds itself, so the tree has no "
                "end. Take it out of itself."
            )
        if depth == _DEEPEST:
            raise ValueError(
                f"The tree is nested more than {_DEEPEST} levels deep. Flatten it: a "
                "dict by path."
            )
        above.append(id(node))
        waiting += [(depth + 1, child) for child in level[0]]
