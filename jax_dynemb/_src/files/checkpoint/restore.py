# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""restore: plain arrays where the tables are the same, re-insertion where not."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.admission import Frequency
from jax_dynemb._src.files.checkpoint import apart as _apart
from jax_dynemb._src.files.checkpoint import below as _below
from jax_dynemb._src.files.checkpoint import checksums as _checksums
from jax_dynemb._src.files.checkpoint import compare as _compare
from jax_dynemb._src.files.checkpoint import former as _former
from jax_dynemb._src.files.checkpoint import layout as _layout
from jax_dynemb._src.files.checkpoint import pieces as _pieces
from jax_dynemb._src.files.checkpoint import plain_leaves as _plain_leaves
from jax_dynemb._src.files.checkpoint import room as _room
from jax_dynemb._src.files.checkpoint import shardings as _shardings
from jax_dynemb._src.files.checkpoint import stored as _stored
from jax_dynemb._src.files.checkpoint import tiers as _tiers
from jax_dynemb._src.files.checkpoint import tree as _tree
from jax_dynemb._src.files.checkpoint import uneven as _uneven
from jax_dynemb._src.files.checkpoint.arrays import check_like
from jax_dynemb._src.files.checkpoint.compare import Plan
from jax_dynemb._src.files.checkpoint.read_pieces import read_pieces
from jax_dynemb._src.files.checkpoint.save_tree import wait
from jax_dynemb._src.files.checkpoint.stored import Saved, arrays_of
from jax_dynemb._src.files.checkpoint.together import together
from jax_dynemb._src.files.checkpoint.tree import Path, TableNode
from jax_dynemb._src.ops import empty_sketch, extended, is_shared, new_run, on_host
from jax_dynemb._src.rows import PIN
from jax_dynemb._src.spec import TableSpec
from jax_dynemb._src.stores import Store
from jax_dynemb._src.table import Tables, with_counter
from jax_dynemb._src.tt import restored


class Restored(NamedTuple):
    """Holds the result of ``restore``.

    Attributes:
      step: of the checkpoint.
      tree: as given, with what was saved; Flax objects were changed in place.
      notes: a sentence for everything that is not as it was saved.
    """

    step: int
    tree: Any
    notes: tuple[str, ...]


def restore(
    directory: _layout.Directory,
    tree: Any,
    *,
    step: int | None = None,
    tables: Tables | None = None,
    strict: bool = True,
    verify: bool = True,
    allow_drop: bool = False,
    stores: Mapping[str, Store] | None = None,
    former_stores: Mapping[str, Sequence[Store]] | None = None,
) -> Restored:
    """Reads a checkpoint into a model, or any pytree.

    Arrays come back with the sharding that the tree's arrays have, whatever mesh they
    were saved from. A table whose capacity (or storage dtype) differs is filled again
    row by row, in chunks. A smaller table of a module grows to its size in the
    checkpoint. Where several processes share a mesh, all of them call it.

    Args:
      directory: given to ``save``.
      tree: of the same structure; arrays or ``jax.ShapeDtypeStruct``. Arrays of tables
        without sharding go where the tables' collection says. Where tables are on a
        mesh, other arrays go to all of it, unless they are on several devices already.
        Without a mesh they are committed to a device where those of the tree are.
        Arrays of tables are donated: their memory is freed before the new ones are
        read. (Damage in a large array is found while it is read: the tree then has to
        be restored from another step.)
      step: which checkpoint; the latest if None.
      tables: as for ``save``.
      strict: False restores what fits where tables differ: a table that one side
        lacks is passed over, and another optimizer or score strategy starts fresh.
      verify: compare the files with their checksums.
      allow_drop: leave the tables in their sizes; rows that find no place in their
        bucket are left out, with a warning. Those with the highest scores stay.
      stores: by table name, of tables that have a store or had one when they were
        saved: ``jde.tiers.open_stores(tables)``. The commit of the checkpoint is
        opened. Rows of a table without a store now are inserted; rows that a smaller
        table has no room for are put into its store.
      former_stores: by table name, the stores of all processes that saved the
        checkpoint, where ``stores`` are others: of another number of processes, or in
        another place. Those of this job begin empty, and each takes the rows of its
        devices. Of another number of processes, logs of ``jde.tiers.ssd`` are found
        where the path is shared.

    Raises:
      FileNotFoundError: there is no such checkpoint, or a store has not its commit.
      DamagedFileError: a file is missing, cut off or altered.
      NotImplementedError: rows of stores of several processes would have to move.
      TypeError, ValueError: the step is no whole number of 0 or more, or something
        differs; the sentence names it. Or a plain table has too few slots. Or stores
        of another number of processes are missing, or ``former_stores`` names a table
        that had none.
    """
    path = _layout.resolved(directory)
    wait(path)
    step = together(_layout.chosen_step, path, step)
    item = path / str(step) / _layout.ITEM
    together(_checksums.check_links, item)
    if verify:
        together(_checksums.verify_file, item, _layout.SCHEMA_FILE)
    saved = Saved.read(item.parent)
    leaves, how = _tree.flatten(tree)
    nodes = _tree.find_tables(tree, tables)
    room = together(_room.make_room, saved, leaves, nodes, allow_drop, verify)
    leaves, nodes = room.leaves, room.nodes
    given = _shardings.placed(leaves, nodes, tables)
    free = _shardings.uncommitted(leaves, nodes, tables)
    own = _apart.targets(given, nodes, saved.fields["tables"])
    whole, together_at, given, nodes = given, nodes, own.leaves, own.nodes
    leaves, longer = _uneven.targets(_tiers.targets(given, nodes), nodes)
    trains = _tree.train_counters(tree)
    plan = _compare.plan(saved.schemas, saved.fields, leaves, nodes, trains, strict)
    below = together(_below.open_commits, saved, stores, nodes, former_stores)
    _below.check_moves(below, nodes, plan.again)
    moved = together(_former.take_over, saved, nodes, below, former_stores)
    if not allow_drop:
        _room.check_brought_up(saved, nodes, below)
    as_given = {*plan.again, *(nodes.keys() - saved.schemas.keys())}
    for table in as_given:  # filled as they are, or not at all
        leaves |= nodes[table].own(given)
    leaves = _in_order(leaves, given)
    _tree.check_shared(leaves)
    large = _large(saved, leaves, plan, longer)
    if verify:
        later = functools.partial(_is_piece_of, large)
        together(_checksums.verify_checksums, item, later)
    freed = [*room.freed, *own.replaced]
    _read_directly(saved.folder, leaves, plan, large, longer, verify, freed)
    leaves = _uneven.as_given(leaves, given, nodes, plan.directly)
    drawn = new_run(any(map(is_shared, leaves.values())))
    _extend_lineages(leaves, nodes, plan, drawn)
    for at in sorted(trains & set(plan.directly)):  # alike in all processes
        leaves[at] = _like(leaves[at], restored(np.array(on_host(leaves[at])), drawn))
    _count_pins(saved, leaves, nodes, plan)
    for path, device in free.items():
        leaves[path] = _shardings.released(leaves[path], device)
    for path in plan.emptied:
        leaves[path] = _begun_again(path, leaves[path], nodes)
    notes = room.notes + plan.notes + moved
    for table in plan.again:
        notes += _read_again(saved, leaves, nodes[table], table, plan, drawn)
    as_saved = {at: p for at, p in nodes.items() if at not in as_given}
    leaves = _in_order(_tiers.tiered(leaves, given, as_saved), given)
    notes += carry_counts(saved, leaves, nodes, plan)
    for table, store in below.items():
        notes += _with_store(saved, leaves, nodes[table], table, store, plan)
    leaves = _apart.together(leaves, whole, together_at)
    room.take()
    return Restored(step, _tree.unflatten(leaves, how), tuple(notes))


def _in_order(
    leaves: Mapping[_tree.Path, Any], given: Mapping[_tree.Path, Any]
) -> dict[_tree.Path, Any]:
    """Orders leaves as the user's tree has them; a table is joined from its own."""
    return {at: leaves[at] for at in (*given, *leaves) if at in leaves}


def _large(
    saved: Saved,
    leaves: Mapping[_tree.Path, Any],
    plan: Plan,
    longer: Mapping[_tree.Path, Any],
) -> dict[str, _tree.Path]:
    """The leaves that are read in pieces, by the name of their directories."""
    pieces = saved.fields.get("pieces", ())
    paths = {tuple(path.split("/")) for path in pieces} | {*longer}
    item = saved.folder / _layout.ITEM
    return {
        _pieces.directory_of(item, path).name: path
        for path in paths
        if path in plan.directly and getattr(leaves[path], "sharding", None)
    }


def _is_piece_of(large: Mapping[str, Any], name: str) -> bool:
    file = FilePath(name)
    return file.parent.as_posix() in large and _pieces.is_piece(file)


def _read_directly(
    folder: FilePath,
    leaves: dict[_tree.Path, Any],
    plan: Plan,
    large: Mapping[str, _tree.Path],
    longer: Mapping[_tree.Path, Any],
    verify: bool,
    freed: Iterable[jax.Array],
) -> None:
    from jax_dynemb._src.files.checkpoint import orbax as _orbax

    item = folder / _layout.ITEM
    wanted = {path: _abstract(leaves[path]) for path in plan.directly}
    now = {path: wanted[path] for path in plan.padded}
    for path, shape in plan.padded.items():
        wanted[path] = wanted[path].update(shape=shape)
    together(_check_arrays, item, wanted)
    check = _checksums.checker(item) if verify else None
    names = {path: name for name, path in large.items()}

    def read(paths: Iterable[_tree.Path]) -> None:
        some = {path: wanted[path] for path in paths}
        pieces = {names[path]: some.pop(path) for path in some.keys() & names.keys()}
        rows = {
            name: to.shape[0] for name, to in pieces.items() if large[name] in longer
        }
        pieces |= {name: _abstract(longer[large[name]]) for name in rows}
        arrays = together(read_pieces, item, pieces, check, rows)
        found = {large[name]: array for name, array in arrays.items()}
        found |= _orbax.restore_leaves(folder, some) if some else {}
        for path, value in found.items():
            value = _padded(value, now[path]) if path in now else value
            leaves[path] = _plain_leaves.as_given(leaves[path], value)

    # What may fail comes first: after this, the tables of the tree are gone.
    read(path for path in plan.directly if path not in plan.donated)
    donated = (longer.get(path, leaves[path]) for path in plan.donated)
    for array in (*freed, *donated):
        if isinstance(array, jax.Array):
            array.delete()
    read(plan.donated)


def _padded(counters: jax.Array, now: jax.ShapeDtypeStruct) -> jax.Array:
    """Zeros behind the counters that an earlier version had."""
    pairs = zip(counters.shape, now.shape, strict=True)
    widths = [(0, after - before) for before, after in pairs]
    pad = jax.jit(lambda x: jnp.pad(x, widths), out_shardings=now.sharding)
    return pad(counters)


def _extend_lineages(
    leaves: dict[_tree.Path, Any],
    nodes: Mapping[_tree.Path, _tree.TableNode],
    plan: Plan,
    drawn: np.ndarray,
) -> None:
    """Begins a segment in the counters that were read as they are."""
    of_arrays: dict[_tree.Path, list[slice]] = {}
    for node in nodes.values():
        path = (*node.arrays, "counters")
        if path in plan.directly:
            rows = node.coll.hash_engine.counter_rows(node.name)
            of_arrays.setdefault(path, []).append(rows)
    for path, tables in of_arrays.items():
        words = np.array(on_host(leaves[path]))
        for rows in tables:
            words[rows] = extended(words[rows], drawn)
        leaves[path] = _like(leaves[path], words)


def _like(leaf: Any, words: np.ndarray) -> Any:
    """Puts words where an array lies."""
    if not isinstance(leaf, jax.Array):
        return words
    return jax.make_array_from_callback(words.shape, leaf.sharding, words.__getitem__)


def _count_pins(
    saved: Saved,
    leaves: dict[_tree.Path, Any],
    nodes: Mapping[_tree.Path, _tree.TableNode],
    plan: Plan,
) -> None:
    """Counts the pinned rows of versions that had pins and no counter of them."""
    column = _ffi.code("counters", "pinned")
    for at, node in nodes.items():
        path = (*node.arrays, "counters")
        if path not in plan.padded or plan.padded[path][1] > column:
            continue
        index = saved.table(at).index()
        pinned = sum(int(np.count_nonzero(scores & PIN)) for _, scores in index)
        words = np.array(on_host(leaves[path]))
        own = words.view(np.uint64)[node.coll.hash_engine.counter_rows(node.name)]
        own[0, column] = pinned
        leaves[path] = _like(leaves[path], words)


def _check_arrays(item: FilePath, wanted: Mapping[_tree.Path, Any]) -> None:
    """No chunk of an array may be missing: it would be read as zeros."""
    with _checksums.of_checkpoint():
        for path, like in wanted.items():
            directory = _pieces.directory_of(item, path)
            if directory.is_dir():  # text has none, nor has a store for all arrays
                check_like(directory, like)


def _abstract(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
    return _plain_leaves.as_stored(leaf)


def _read_again(
    saved: Saved,
    leaves: dict[_tree.Path, Any],
    node: _tree.TableNode,
    table: _tree.Path,
    plan: Plan,
    drawn: np.ndarray,
) -> list[str]:
    """Fills one table row by row; its leaves are replaced in ``leaves``."""
    own = node.own(leaves)
    # What an optax optimizer stores once has been read; the rest is donated.
    kept = {path: own[path] for path in own if path in plan.directly}
    own |= {
        path: jax.device_put(np.asarray(leaf), leaf.sharding)
        for path, leaf in kept.items()
    }
    given = _stored.state_of(node, own.values())
    stored, anew = saved.table(table), plan.anew[table]
    new, notes = _stored.fill(node, given, stored, anew, drawn)
    leaves |= dict(zip(own, jax.tree.leaves(new), strict=True)) | kept
    return notes


def _with_store(
    saved: Saved,
    leaves: dict[_tree.Path, Any],
    node: _tree.TableNode,
    table: _tree.Path,
    store: Store,
    plan: Plan,
) -> list[str]:
    """Moves rows where a table has a store now and had none, or the reverse."""
    own = node.own(leaves)
    arrays = _stored.arrays_of(node, own.values())
    name = node.coll.state_name(node.name)
    if not _below.has_store(node):
        new, sentence = _below.bring_up({name: arrays}, node, store)
        leaves |= dict(zip(own, jax.tree.leaves(new), strict=True))
        return [sentence]
    if table not in plan.again:
        return []
    sentence = _below.put_left_out(saved, {name: arrays}, node, table, store)
    return [] if sentence is None else [sentence]


def _begun_again(
    path: _tree.Path, leaf: Any, nodes: Mapping[_tree.Path, _tree.TableNode]
) -> Any:
    """A sketch or a log of removed keys, of tables that begin one."""
    owner = next(p for p in nodes.values() if path[: len(p.arrays)] == p.arrays)
    spec = TableSpec.of(owner.config)

    def part(index: Any) -> np.ndarray:
        shape = leaf.sharding.shard_shape(leaf.shape)
        if path[len(owner.arrays)] == "removed":
            return np.zeros(shape, leaf.dtype)
        return np.asarray(empty_sketch(spec, shape[0]))

    return jax.make_array_from_callback(leaf.shape, leaf.sharding, part)


def carry_counts(
    saved: Saved, leaves: dict[Path, Any], nodes: Mapping[Path, TableNode], plan: Plan
) -> Iterator[str]:
    """Fills counters in ``leaves`` that were not read as saved; yields what differs."""
    for at, node in nodes.items():
        rule = node.config.admission
        emptied = at in plan.again or (*node.arrays, "sketch") in plan.emptied
        if not isinstance(rule, Frequency) or not emptied:
            continue
        if at not in saved.schemas:
            continue
        own = node.own(leaves)
        state = arrays_of(node, own.values())
        state, problems = with_counter(node.coll, node.name, state, saved.table(at))
        leaves |= dict(zip(own, jax.tree.leaves(state), strict=True))
        yield from (f"Table '{'/'.join(at)}': {problem}" for problem in problems)
