# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Stores below tables: committed with a checkpoint, and opened with it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

import jax
import numpy as np

from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.shard import PACKED, counter_values, set_counters
from jax_dynemb._src.files.checkpoint import former as _former
from jax_dynemb._src.files.checkpoint import tree as _tree
from jax_dynemb._src.files.checkpoint.stored import Saved
from jax_dynemb._src.files.checkpoint.tree import Path, TableNode
from jax_dynemb._src.files.live import warn_of_loss
from jax_dynemb._src.rows import part
from jax_dynemb._src.store_identity import check_commit, identity_at, identity_noted
from jax_dynemb._src.store_tier import StoreTier
from jax_dynemb._src.stores import Layout, Store, rows_of_store
from jax_dynemb._src.table import Tables, insert_chunks


class Commits(Protocol):
    """Describes a row prefetcher of ``jde.tiers`` or ``jde.nnx``: it has stores."""

    @property
    def stores(self) -> Mapping[str, Store]: ...

    def commit(self, state: States, tag: str, step: int | None = None) -> None:
        """Commits all stores with what has departed from a state."""
        ...


def commit(
    prefetcher: Commits | None, tree: Any, nodes: Mapping[Path, TableNode], step: int
) -> dict[str, str]:
    """Commits the stores below tables, by path; ValueError without a prefetcher."""
    below = {at: p for at, p in nodes.items() if has_store(p)}
    if not below and prefetcher is None:
        return {}
    names = sorted(node.name for node in below.values())
    if prefetcher is None:
        raise ValueError(
            f"The tables {names} have rows in a store, which must be of the same step "
            "as the checkpoint. Pass prefetcher=prefetcher, what "
            "jde.tiers.prefetch_rows returned."
        )
    if names != sorted(prefetcher.stores):
        raise ValueError(
            f"The prefetcher has stores for {sorted(prefetcher.stores)}, but the tree "
            f"has tables with stores {names}. Save all tables of the prefetcher in one "
            "tree."
        )
    states = _tree.table_states(tree)
    given = {
        node.coll.state_name(node.name): states[node.arrays] for node in below.values()
    }
    tag = f"step-{step}"
    prefetcher.commit(given, tag, step)
    return dict.fromkeys(map("/".join, below), tag)


def open_commits(
    saved: Saved,
    stores: Mapping[str, Store] | None,
    nodes: Mapping[Path, TableNode],
    former: _former.FormerStores | None = None,
) -> dict[Path, Store]:
    """Opens a checkpoint's commits, by path, once all stores are checked.

    Those that rows of former stores move into stay as they are, empty.
    FileNotFoundError if a store has no such commit. ValueError if a store is missing
    or of no table here, or keeps rows that are not the checkpoint's.
    """
    _former.check_names(saved, nodes, former)
    _check_names(nodes, stores)
    result, commits = {}, []
    for at, node in nodes.items():
        tag = _former.tag_of(saved, at)
        store = _given_store(stores, node, tag)
        if store is None:
            continue
        result[at] = store
        if tag is not None and _former.moves(saved, node.name, former):
            _former.check_empty(store, node, saved)
            continue
        where = f"The store of table '{node.name}'"
        if tag is not None:
            stored = saved.table(at).identity
            commits.append((store, tag, stored, where))
        elif len(store.keys()):
            raise ValueError(
                f"Table '{node.name}' was saved without a store, but its store "
                "has rows of another run. Give it an empty one."
            )
    for store, tag, stored, where in commits:
        check_commit(identity_at(store, tag), stored, where, tag)
    for store, tag, stored, where in commits:
        store.open(tag)
        # Stores of users may tell only now.
        check_commit(identity_noted(store), stored, where, tag)
    return result


def check_moves(
    below: Mapping[Path, Store],
    nodes: Mapping[Path, TableNode],
    again: Collection[Path],
) -> None:
    """Refuses to move rows between tables and stores of several processes."""
    if jax.process_count() == 1:
        return
    for at in below:
        if at in again or not has_store(nodes[at]):
            raise NotImplementedError(
                f"Table '{'/'.join(at)}' has stores of several processes, and another "
                "size or no store now, so its rows would have to move. Restore it with "
                "the host_rows and the tier that it was saved with; hbm_fraction may "
                "be another one."
            )


def _check_names(
    nodes: Mapping[Path, TableNode], stores: Mapping[str, Store] | None
) -> None:
    """Refuses stores of tables that are not there, such as misspelt ones."""
    names = {node.name for node in nodes.values()}
    if unknown := sorted((stores or {}).keys() - names):
        raise ValueError(
            f"stores names {unknown}, but the tables to restore are {sorted(names)}. "
            "Leave out the others."
        )


def _given_store(
    stores: Mapping[str, Store] | None, node: TableNode, tag: str | None
) -> Store | None:
    """The store of a table, if it has or had one; refuses one of other rows."""
    store = (stores or {}).get(node.name)
    if store is None and (tag is not None or has_store(node)):
        raise ValueError(
            f"Table '{node.name}' has rows in a store. Pass stores={{"
            f"'{node.name}': store}}; jde.tiers.open_stores(coll) opens those of "
            "the tiers."
        )
    if store is not None:
        where = f"the store of table '{node.name}'"
        Layout.of(node.config).check_same_table(store.layout, where)
    return store


def put_left_out(
    saved: Saved, states: States, node: TableNode, table: Path, store: Store
) -> str | None:
    """Puts rows without room into the table's store; says so, or returns None."""
    held, count = _keys(node.coll, states, node.name), 0
    for chunk in saved.table(table).chunks():
        left = part(chunk, ~np.isin(chunk.keys, held))
        stored = store.put(left.keys, store.layout.pack(left), saved.fields["step"])
        count += len(left.keys)
        if not stored.all():
            raise RuntimeError(
                f"The store of table '{node.name}' has no room for the rows that the "
                "table has none for. Raise disk_gigabytes, or the table's capacity."
            )
    return (
        f"Table '{node.name}': {count} of its rows are in its store." if count else None
    )


def bring_up(states: States, node: TableNode, store: Store) -> tuple[Any, str]:
    """Inserts all rows of a store into a table without one; donates its arrays."""
    coll, name = node.coll, node.name
    held = _keys(coll, states, name)
    keys = store.keys()
    keys = keys[~np.isin(keys, held)]
    arrays, own = coll.state_name(name), coll.hash_engine.counter_rows(name)
    clock = counter_values(coll.hash_engine.with_own_counters(states, name))["clock"]
    new = insert_chunks(coll, name, states[arrays], rows_of_store(store, keys))
    if _latest(store, keys, node) <= clock:  # no lookup has come since
        new = set_counters(new, {"clock": clock}, own)
    there = np.isin(keys, _keys(coll, {arrays: new}, name)).sum()
    sentence = f"Table '{name}': {there} rows came from its store."
    if there < len(keys):
        sentence += (
            f" {len(keys) - there} found no place in their bucket: raise its capacity."
        )
        warn_of_loss(sentence)
    return new, sentence


def _latest(store: Store, keys: np.ndarray, node: TableNode) -> int:
    """The latest clock in the scores of rows; a server may have rows of the future."""
    if node.config.score_strategy == "customized":
        return 0  # its scores are no clocks
    packed = node.config.score_strategy in PACKED
    low = np.uint64(2**32 - 1 if packed else 2**64 - 1)
    scores = (chunk.scores & low for chunk in rows_of_store(store, keys))
    return max((int(each.max()) for each in scores), default=0)


def _keys(coll: Tables, states: States, name: str) -> np.ndarray:
    pieces: Iterable[np.ndarray] = (keys for keys, _ in coll.engine.index(states, name))
    return np.concatenate([np.empty(0, np.int64), *pieces])


def has_store(node: TableNode) -> bool:
    """Whether a table has a store in its tier."""
    return isinstance(getattr(node.config, "tier", None), StoreTier)
