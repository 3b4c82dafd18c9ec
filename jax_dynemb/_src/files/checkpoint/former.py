# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows below tables move from the stores that saved them to other, empty ones.

Each process had a store with the rows of its devices. A job of another number reads
all of them: each process takes the rows that its devices own now. A job of the same
number does so where the caller names the former stores.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path as FilePath

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_dynemb._src.files.checkpoint.stored import Saved
from jax_dynemb._src.files.checkpoint.tree import Path, TableNode
from jax_dynemb._src.ids import words_of
from jax_dynemb._src.ops import hash_words, owner_of
from jax_dynemb._src.store_identity import (
    check_commit,
    identity_at,
    identity_noted,
    note_identity,
)
from jax_dynemb._src.store_tier import SsdPlace, StoreTier
from jax_dynemb._src.stores import Layout, Log, Store
from jax_dynemb._src.table import Tables

_AT_ONCE = 1 << 16  # rows that are read
FormerStores = Mapping[str, Sequence[Store]]


def moves(saved: Saved, name: str, given: FormerStores | None) -> bool:
    """Whether a table's rows move, since the stores now are not those of the save."""
    return name in (given or {}) or _processes(saved) != jax.process_count()


def _processes(saved: Saved) -> int:
    return saved.fields.get("store_processes", 1)


def tag_of(saved: Saved, at: Path) -> str | None:
    """Names the commit of a table's stores; None of one that had none."""
    return saved.fields.get("stores", {}).get("/".join(at))


def _processes_of(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


def take_over(
    saved: Saved,
    nodes: Mapping[Path, TableNode],
    below: Mapping[Path, Store],
    given: FormerStores | None,
) -> list[str]:
    """Puts the rows that this process owns now into its stores, which are empty.

    Args:
      saved: a checkpoint, of the stores of any number of processes.
      nodes: the tables, by path.
      below: the stores of this process.
      given: by table name, the stores of all processes that saved it; those of
        ``jde.tiers.ssd`` are found beside the new ones.

    Returns:
      A sentence for each table.

    Raises:
      DamagedFileError, FileNotFoundError: of logs that should be there.
      ValueError: stores are missing, of another run, or have no room.
    """
    notes = []
    for at, store in below.items():
        node, tag = nodes[at], tag_of(saved, at)
        if tag is None or not moves(saved, node.name, given):
            continue
        identity = saved.table(at).identity
        with _opened(saved, node, tag, given) as former:
            for each in former:
                where = f"A former store of table '{node.name}'"
                known = identity_at(each, tag) or identity_noted(each)
                check_commit(known, identity, where, tag)
            count = sum(_moved(each, store, node, saved) for each in former)
        note_identity(store, identity)
        notes.append(
            f"Table '{node.name}': {count} rows came from the stores of "
            f"{_processes_of(len(former))}."
        )
    return notes


def check_names(
    saved: Saved, nodes: Mapping[Path, TableNode], given: FormerStores | None
) -> None:
    """Refuses former stores of tables that had none or are not restored; ValueError."""
    had = {n.name for at, n in nodes.items() if tag_of(saved, at) is not None}
    if unknown := sorted((given or {}).keys() - had):
        raise ValueError(
            f"former_stores names {unknown}, but of the tables to restore only "
            f"{sorted(had)} had a store when they were saved. Leave out the others."
        )


def check_empty(store: Store, node: TableNode, saved: Saved) -> None:
    """Refuses to mix rows that move with others; ValueError."""
    if not (count := len(store.keys())):
        return
    then = _processes(saved)
    instead = (
        "Leave out former_stores if it has the commit of the checkpoint itself, or give"
        if then == jax.process_count()
        else "Give"
    )
    raise ValueError(
        f"The store of table '{node.name}' has {count} rows, but those of a "
        f"checkpoint of {_processes_of(then)} move into empty stores. {instead} it "
        "another place, or call store.discard(store.keys()) if it is none of theirs."
    )


@contextlib.contextmanager
def _opened(
    saved: Saved, node: TableNode, tag: str, given: FormerStores | None
) -> Iterator[Sequence[Store]]:
    """The stores of all processes then, at their commit; own ones are closed."""
    then = _processes(saved)
    with contextlib.ExitStack() as stack:
        if node.name in (given or {}):
            stores = list((given or {})[node.name])
        else:
            opened = _logs(node, then, tag)
            stores = [stack.enter_context(log()) for log in opened]
        if len(stores) != then:
            raise ValueError(
                f"former_stores of table '{node.name}' are {len(stores)}, but the "
                f"checkpoint is of {_processes_of(then)}: give the store of each."
            )
        for store in stores:
            where = f"a former store of table '{node.name}'"
            Layout.of(node.config).check_same_table(store.layout, where)
            store.open(tag)
        yield stores


def _logs(node: TableNode, then: int, tag: str) -> list[Callable[[], Log]]:
    """Finds the logs of all processes then; each is opened by a call."""
    tier = getattr(node.config, "tier", None)
    place = tier.store if isinstance(tier, StoreTier) else None
    what = (
        f"Table '{node.name}' was saved by {_processes_of(then)}, each with a store of "
        f"its own, and this job has {jax.process_count()}. Pass former_stores="
        f"{{'{node.name}': [...]}}, the stores of all {then}: this job's take their "
        "rows over."
    )
    if not isinstance(place, SsdPlace):
        raise ValueError(what)
    parts = [f"{k}-of-{then}" for k in range(then)] if then > 1 else [""]
    folders = [FilePath(place.path) / part / node.name for part in parts]
    if missing := [str(folder) for folder in folders if not folder.is_dir()]:
        raise FileNotFoundError(
            f"{what} Of jde.tiers.ssd they are found where every process can read "
            f"{missing[0]}."
        )

    def opener(folder: FilePath) -> Callable[[], Log]:
        return lambda: Log(folder, node.config, tag=tag, read_only=True)

    return list(map(opener, folders))


def _moved(former: Store, store: Store, node: TableNode, saved: Saved) -> int:
    """Copies the rows of the keys that this process owns; returns how many."""
    keys, count = former.keys(), 0
    for begin in range(0, len(keys), _AT_ONCE):
        some = keys[begin : begin + _AT_ONCE]
        some = some[owned(node.coll, node.name, some)]
        found, packed = former.get(some)
        stored = store.put(some[found], packed[found], saved.fields["step"])
        if not stored.all():
            raise ValueError(
                f"The store of table '{node.name}' has no room for its rows of the "
                "checkpoint. Raise disk_gigabytes."
            )
        count += int(found.sum())
    return count


def owned(coll: Tables, table: str, keys: np.ndarray) -> np.ndarray:
    """Selects the keys that shards on devices of this process own.

    Args:
      coll: the tables.
      table: the name of one, row-wise or table-wise on a mesh.
      keys: int64[n].

    Returns:
      bool[n].
    """
    layout = coll.hash_engine.layout
    if not layout.spans_processes:
        return np.ones(len(keys), bool)
    assert isinstance(layout.mesh, Mesh)
    stack = layout.stack_of(table)
    hashes = hash_words(jnp.asarray(words_of(keys)), coll.tables[table].hash_seed)
    local = stack.local
    owner = np.asarray(owner_of(*hashes, local.num_buckets, local.local_buckets))
    return np.isin(
        owner + stack.owners(table)[0], _own_shards(layout.mesh, layout.axes)
    )


def _own_shards(mesh: Mesh, axes: Sequence[str]) -> list[int]:
    """Numbers the shards that are on devices of this process."""
    shards = math.prod(mesh.shape[axis] for axis in axes)
    split, here = NamedSharding(mesh, PartitionSpec(tuple(axes))), jax.process_index()
    places = split.devices_indices_map((shards,)).items()
    return [part[0].start or 0 for d, part in places if d.process_index == here]
