# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Room for every row of a checkpoint: modules grow, plain states are refused.

A module holds its ``Tables``, so a restore can exchange them. Those of a plain state
are the caller's: compiled steps and the rest of the program hold them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.files.checkpoint import below as _below
from jax_dynemb._src.files.checkpoint import checksums as _checksums
from jax_dynemb._src.files.checkpoint.layout import ITEM
from jax_dynemb._src.files.checkpoint.stored import Saved
from jax_dynemb._src.files.checkpoint.tree import Path, TableNode
from jax_dynemb._src.files.live import no_place
from jax_dynemb._src.rows import Keys, Schema, roomy_capacity, without_place
from jax_dynemb._src.stores import Store
from jax_dynemb._src.table import Tables

_ALLOW = "or pass allow_drop=True to keep those with the highest scores of each bucket."


@dataclasses.dataclass
class Room:
    """Holds a tree that has room for every row."""

    leaves: dict[Path, Any]  # by path; arrays of tables that grow are abstract
    nodes: dict[Path, TableNode]  # of the tables, in their new sizes
    # The arrays that those of larger tables replace.
    freed: list[jax.Array] = dataclasses.field(default_factory=list)
    # The modules that grow, with their new tables.
    grown: list[tuple[Any, Tables]] = dataclasses.field(default_factory=list)
    # A sentence for each table that grows.
    notes: list[str] = dataclasses.field(default_factory=list)

    def take(self) -> None:
        """Gives the modules their larger tables, once their arrays are there."""
        for module, coll in self.grown:
            module.coll = coll


def make_room(
    saved: Saved,
    leaves: Mapping[Path, Any],
    nodes: Mapping[Path, TableNode],
    allow_drop: bool,
    verify: bool,
) -> Room:
    """Lets tables of modules grow to their sizes in a checkpoint; touches no array.

    Where rows would be lost it raises ValueError, after a check of the keys' checksums
    with ``verify``. ``allow_drop`` leaves all sizes as they are.
    """
    room = Room(dict(leaves), dict(nodes))
    if allow_drop:
        return room
    due: dict[int, dict[str, int]] = {}
    modules: dict[int, Any] = {}
    for at, node in nodes.items():
        table = _Table.of(saved, at, node)
        if table is None or not (slots := table.needed_slots()):
            continue
        if node.module is None or slots > node.config.max_slots:
            if verify:
                item = saved.folder / ITEM
                _checksums.verify_checksums(item, lambda name: ".index/" not in name)
            table.refuse(slots)
        else:
            modules[id(node.module)] = node.module
            due.setdefault(id(node.module), {})[node.name] = slots
            room.notes.append(
                f"Table '{'/'.join(at)}' has grown from {node.config.num_slots} to "
                f"the {slots} slots that its rows need."
            )
    for number, sizes in due.items():
        _grow(room, modules[number], modules[number].coll.plan_growth(sizes).coll)
    return room


def check_brought_up(
    saved: Saved, nodes: Mapping[Path, TableNode], below: Mapping[Path, Store]
) -> None:
    """Refuses rows of stores that tables without a store have no place for."""
    for at, store in below.items():
        if _below.has_store(nodes[at]):
            continue
        table = _Table.of(saved, at, nodes[at])
        if table is not None and (slots := table.needed_slots(store)):
            table.refuse(slots, store)


@dataclasses.dataclass(frozen=True)
class _Table:
    """A table of a checkpoint, and the one that takes its rows."""

    saved: Saved
    at: Path
    node: TableNode
    schema: Schema

    @classmethod
    def of(cls, saved: Saved, at: Path, node: TableNode) -> _Table | None:
        """Opens the table at a path; None without one, or if its rows have a store."""
        schema = saved.schemas.get(at)
        dynamic = isinstance(node.config, TableConfig)
        if schema is None or not dynamic or _below.has_store(node):
            return None
        return cls(saved, at, node, schema) if schema.num_buckets else None

    @property
    def slots(self) -> int:
        """Counts the slots that the table had."""
        return self.schema.num_buckets * _ffi.constants()["bucket_capacity"]

    def needed_slots(self, store: Store | None = None) -> int:
        """Slots that have room for every row; 0 if the table has them already."""
        now = self.node.config
        smaller = now.num_buckets < self.schema.num_buckets
        if self.node.module is not None and smaller and self._is_cut(store):
            return self.slots
        same = now.num_buckets % self.schema.num_buckets == 0
        if same and now.hash_seed == self.schema.hash_seed and store is None:
            return 0
        if not self._lost(store):
            return 0
        least = self.slots if smaller else 0
        return roomy_capacity(self._keys(store), now, least) or self.slots

    def _is_cut(self, store: Store | None) -> bool:
        """Whether the size of the checkpoint is enough: each bucket is one there."""
        seeds = self.node.config.hash_seed == self.schema.hash_seed
        cut = self.schema.num_buckets % self.node.config.num_buckets == 0
        return seeds and cut and store is None

    def refuse(self, slots: int, store: Store | None = None) -> None:
        """Raises ValueError with what would be lost, if anything would."""
        name, config, lost = self.node.name, self.node.config, self._lost(store)
        if not lost:
            return
        rows = sum(map(len, self._keys(store)()))
        fix = (
            f"Raise max_capacity to {slots} or more"
            if slots > config.max_slots
            else f"Grow it first: coll, state = coll.grow(coll.init(), {{'{name}': "
            f"{slots}}}), and restore into this state with tables=coll; or declare "
            f"capacity={slots}"
        )
        raise ValueError(
            f"{no_place('/'.join(self.at), lost, rows, config.num_slots)} It was saved "
            f"with {self.slots}. {fix}, {_ALLOW}"
        )

    def _lost(self, store: Store | None) -> int:
        config, keys = self.node.config, self._keys(store)
        return without_place(keys, config.num_buckets, config.hash_seed)

    def _keys(self, store: Store | None) -> Keys:
        """Starts to read the keys of the checkpoint, and of a store below it."""
        stored = self.saved.table(self.at)

        def keys() -> Iterator[np.ndarray]:
            held = [np.empty(0, np.int64)]
            for some, _ in stored.index():
                yield some
                if store is not None:
                    held.append(some)
            if store is not None:
                below = store.keys()
                yield below[~np.isin(below, np.concatenate(held))]

        return keys


def _grow(room: Room, module: Any, coll: Tables) -> None:
    """Puts the types of larger arrays into a tree, with the shardings of the old."""
    made = jax.eval_shape(coll.init, np.uint32(0))
    arrays = {}
    for at, node in room.nodes.items():
        if node.module is module:
            room.nodes[at] = dataclasses.replace(node, coll=coll)
            arrays[node.arrays] = node, made[coll.state_name(node.name)]
    for node, new in arrays.values():
        own = node.own(room.leaves)
        for (path, old), shape in zip(own.items(), jax.tree.leaves(new), strict=True):
            if tuple(old.shape) == tuple(shape.shape):
                continue
            room.leaves[path] = jax.ShapeDtypeStruct(
                shape.shape, shape.dtype, sharding=old.sharding
            )
            if isinstance(old, jax.Array):
                room.freed.append(old)
    room.grown.append((module, coll))
