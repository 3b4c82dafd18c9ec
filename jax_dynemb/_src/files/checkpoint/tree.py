# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A model, an optimizer or any pytree as named leaves, and back; where its tables are.

A leaf's name is its path. So orbax writes plain nested dicts, whatever the containers
of Flax or of the user are. A name in a file has the same meaning without them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.tree_util import default_registry

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.nnx.interface import TableModule, is_graph_node
from jax_dynemb._src.ops import TableState, refuse_packed
from jax_dynemb._src.rows import Schema
from jax_dynemb._src.table import Tables, check_not_donated, check_values
from jax_dynemb._src.tt import TTState

Path = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class TableNode:
    """Where a table stands in a tree."""

    coll: Tables  # the collection that works on it
    name: str
    # Where its arrays are; tables that share arrays are several at one place.
    arrays: Path
    # The module that holds the collection; None for a plain state.
    module: Any = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def config(self) -> TableConfig:
        """Returns the config of the table."""
        return self.coll.tables[self.name]

    def own(self, leaves: Mapping[Path, Any]) -> dict[Path, Any]:
        """Selects the leaves of its arrays."""
        above = self.arrays
        return {path: x for path, x in leaves.items() if path[: len(above)] == above}

    @property
    def schema(self) -> Schema:
        """Returns what a checkpoint says about the table and its part of the arrays.

        Raises:
          ValueError: the table has packed rows.
        """
        refuse_packed([self.config], "checkpoints")
        schema = Schema.of(self.config)
        extent = self.coll.engine.extent(self.name)
        return dataclasses.replace(schema, hash_seed=self.config.hash_seed, **extent)


def flatten(tree: Any) -> tuple[dict[Path, Any], Any]:
    """Leaves by name, and what ``unflatten`` needs; ValueError if two have one name."""
    check_end(tree)
    plain = jax.tree.map(_state_of, tree, is_leaf=is_graph_node)
    leaves, treedef = jax.tree_util.tree_flatten_with_path(plain)
    # A tree that is one leaf gives it no name.
    named = {_path(keys) or ("value",): leaf for keys, leaf in leaves}
    if len(named) < len(leaves):
        raise ValueError(
            "Two leaves of the tree have the same path, such as a dict with the keys "
            "1 and '1'. Rename one of them."
        )
    return named, (tree, treedef)


def unflatten(leaves: Mapping[Path, Any], how: Any) -> Any:
    """Puts new leaves in; Flax objects are changed in place and returned."""
    tree, treedef = how
    plain = jax.tree.unflatten(treedef, leaves.values())
    return jax.tree.map(_take_state, tree, plain, is_leaf=is_graph_node)


def table_states(tree: Any) -> dict[Path, TableState]:
    """The arrays of all tables of a tree, by path."""
    plain = jax.tree.map(_state_of, tree, is_leaf=is_graph_node)
    leaves, _ = jax.tree_util.tree_flatten_with_path(plain, is_leaf=_is_table)
    return {_path(keys): leaf for keys, leaf in leaves if _is_table(leaf)}


def train_counters(tree: Any) -> set[Path]:
    """Finds the counters of the tensor trains of a tree."""
    plain = jax.tree.map(_state_of, tree, is_leaf=is_graph_node)
    leaves, _ = jax.tree_util.tree_flatten_with_path(plain, is_leaf=_is_train)
    return {(*_path(keys), "counters") for keys, leaf in leaves if _is_train(leaf)}


def nested(leaves: Mapping[Path, Any]) -> dict[str, Any]:
    """Named leaves as nested dicts."""
    result: dict[str, Any] = {}
    for path, leaf in leaves.items():
        place = result
        for part in path[:-1]:
            place = place.setdefault(part, {})
        place[path[-1]] = leaf
    return result


def check_arrays(leaves: Mapping[Path, Any]) -> None:
    """Refuses donated arrays, tracers, and a tree with nothing to save."""
    if not leaves:
        raise ValueError(
            "The tree has no arrays. Pass what to save: a module, a state of "
            "jde.Tables, or a dict of these."
        )
    check_values(leaves, "save")
    check_not_donated(leaves, "save")


def check_shared(leaves: Mapping[Path, Any]) -> None:
    """Refuses an array that is one process's own, where several save."""
    if jax.process_count() == 1:
        return
    for path, leaf in leaves.items():
        sharding = getattr(leaf, "sharding", None)
        if sharding is not None and sharding.is_fully_addressable:
            raise ValueError(
                f"'{'/'.join(path)}' lies on devices of this process only. Put what "
                "every process has alike on the whole mesh: "
                "jde.distributed.replicate(tree, mesh)."
            )


def find_tables(tree: Any, tables: Tables | None) -> dict[Path, TableNode]:
    """Finds the tables of modules, and of ``tables`` that stand in the tree, by path.

    TypeError if ``tables`` are none; ValueError for an unknown config or other sizes.
    """
    if tables is not None and not isinstance(tables, Tables):
        raise TypeError(
            f"tables must be the jde.Tables that made the state, not {kind_of(tables)}."
        )
    nodes = dict(_tables_of_modules(tree))
    plain = jax.tree.map(_state_of, tree, is_leaf=is_graph_node)
    leaves, _ = jax.tree_util.tree_flatten_with_path(plain, is_leaf=_is_table)
    made = None
    for keys, leaf in leaves:
        path = _path(keys)
        if not _is_table(leaf) or any(path == p.arrays for p in nodes.values()):
            continue
        known = () if tables is None else _of_arrays(tables, path)
        if tables is None or not known:
            raise ValueError(
                f"The table at '{'/'.join(path)}' has no known config. Pass "
                "tables=coll, the jde.Tables that made the state, and keep the state "
                "by table name as it returns it."
            )
        made = made or jax.eval_shape(tables.init, np.uint32(0))
        _check_config(made, path, leaf)
        nodes |= known
    return nodes


def _check_config(made: Mapping[str, Any], path: Path, state: TableState) -> None:
    """Refuses arrays of other sizes, such as after a growth; counters may grow."""
    found, expected = (
        {jax.tree_util.keystr(keys): (tuple(x.shape), x.dtype.name) for keys, x in of}
        for of in map(jax.tree_util.tree_leaves_with_path, (state, made[path[-1]]))
    )
    for name in (found.keys() | expected.keys()) - {".counters"}:
        if found.get(name) != expected.get(name):
            raise ValueError(
                f"The table at '{'/'.join(path)}' belongs to other tables than "
                f"tables=: '{name.lstrip('.')}' is {found.get(name)}, expected "
                f"{expected.get(name)}. Pass the jde.Tables that the state is of now; "
                "grow returns new ones."
            )


def _of_arrays(coll: Tables, path: Path, module: Any = None) -> dict[Path, TableNode]:
    """The tables whose arrays are at a path."""
    return {
        (*path[:-1], name): TableNode(coll, name, path, module)
        for name in coll.tables
        if coll.state_name(name) == path[-1]
    }


def _tables_of_modules(tree: Any) -> Iterator[tuple[Path, TableNode]]:
    nodes, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_graph_node)
    for keys, node in nodes:
        if not is_graph_node(node):
            continue
        for inner, each in nnx.iter_graph(node):
            if isinstance(each, TableModule):
                for name in each.tables:
                    path = (*_path(keys), *map(str, inner), "tables", name)
                    yield from _of_arrays(each.coll, path, each).items()


def _state_of(node: Any) -> Any:
    """Returns the state of a module; a Variable, as in an nnx.State, is a state."""
    if not is_graph_node(node) or isinstance(node, nnx.Variable):
        return node
    return nnx.state(node)


def _take_state(node: Any, new: Any) -> Any:
    if not is_graph_node(node):
        return new
    if isinstance(node, nnx.Variable):
        node.update_from_state(new)
    else:
        nnx.update(node, new)
    return node


def _is_table(node: Any) -> bool:
    return isinstance(node, TableState)


def _is_train(node: Any) -> bool:
    return isinstance(node, TTState)


_OF_VARIABLE = jax.tree_util.GetAttrKey("value")  # of an nnx.Variable


def _path(keys: Any) -> Path:
    return tuple(_part(key) for key in keys if key != _OF_VARIABLE)


def _part(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


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
