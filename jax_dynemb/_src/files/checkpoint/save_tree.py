# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""save: orbax's manager writes, with the tables' configs and checksums beside."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

import jax
import numpy as np

from jax_dynemb._src.engines import shard
from jax_dynemb._src.files.checkpoint import apart as _apart
from jax_dynemb._src.files.checkpoint import below as _below
from jax_dynemb._src.files.checkpoint import tiers as _tiers
from jax_dynemb._src.files.checkpoint import tree as _tree
from jax_dynemb._src.files.checkpoint import uneven as _uneven
from jax_dynemb._src.files.checkpoint.index import index_layout
from jax_dynemb._src.files.checkpoint.layout import (
    DRAFT,
    Directory,
    check_no_links,
    latest,
    resolved,
    whole_step,
)
from jax_dynemb._src.files.checkpoint.pieces import piece_shape
from jax_dynemb._src.files.checkpoint.plain_leaves import (
    as_stored,
    check_leaves,
    check_names,
)
from jax_dynemb._src.files.checkpoint.tree import Path, TableNode
from jax_dynemb._src.files.disk import Presence, disk_errors
from jax_dynemb._src.files.integrity import FORMAT_VERSION
from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.table import Tables

# One orbax manager a directory: it holds the thread that writes.
_managers: dict[FilePath, tuple[Any, Any]] = {}
# Threads that interrupted saves have left behind.
_left: dict[FilePath, list[threading.Thread]] = {}
_POOLS = ("asyncio_", "metadata_store")  # whose threads do not end
_PATIENCE, _QUIET = 10.0, 0.2  # seconds until drafts are left to the next program
_INTERRUPTED = object()  # in place of how many it keeps: its drafts are to be deleted
# Directories that this process saves in, so that no other takes its drafts for dead.
_present: dict[FilePath, Presence] = {}
# The number of the operating system's error, as versions of tensorstore write it.
_OS_ERROR = re.compile(r"\bos_error_code='(\d+)'|\bOS error (\d+)\b")


def save(
    directory: Directory,
    step: int,
    tree: Any,
    *,
    tables: Tables | None = None,
    keep: int | None = 3,
    wait: bool = False,
    host_gigabytes: float = 8,
    prefetcher: _below.Commits | None = None,
) -> None:
    """Writes a checkpoint; returns when training may go on.

    The arrays have left their devices when it returns, the files are written in the
    background. A checkpoint appears under its step only once it is complete, so a
    process may be killed at any moment. What went wrong in the background is raised by
    the next ``save`` or ``wait``. Where several processes share a mesh, all of them
    call it, with a directory that they share.

    Args:
      directory: of all checkpoints of a run, on a local or mounted file system.
      step: 0 or more, higher than any step that is there.
      tree: what to save: a Flax module, ``{"model": model, "optimizer": optimizer}``,
        a state of ``jde.Tables``, or any pytree with such parts. Other leaves are
        arrays, numbers, strings, bytes and None.
      tables: the collection of states that stand in the tree by themselves.
      keep: the newest so many checkpoints stay, older ones are deleted; None keeps all.
      wait: return when the checkpoint is on the disk.
      host_gigabytes: the most that a process keeps in host memory of large arrays of
        GPUs until they are written. Where they have more, ``save`` returns when all but
        so much is on the disk.
      prefetcher: of tables with a store, what ``jde.tiers.prefetch_rows`` or
        ``jde.nnx.prefetch_rows`` returned. It puts what has departed into the stores
        and commits them as "step-<step>" before the checkpoint gets its name. Restore
        opens that commit.

    Raises:
      TypeError: the step is no whole number, such as a bool or a float; ``tables`` are
        no ``Tables``; or it is called inside jit. Or a leaf is of a type that could
        not come back.
      ValueError: the step is negative or not higher than the latest, or ``keep`` is
        below 1. Or the tree is empty or endless, or an array one process's own. Or a
        leaf has no elements, or a name that can not be a file's. Or a table's config
        is not known or not that of its arrays. Or a table has a store, and there is
        no prefetcher. Or a link stands where it would write or delete.
      RuntimeError: a store has no room for a row, or an array was donated.
      OSError: the disk is full or refuses; it names the path.
    """
    from jax_dynemb._src.files.checkpoint import orbax as _orbax

    path, step = resolved(directory), whole_step(step)
    _check_keep(keep)
    newest = latest(path)
    if newest is not None and step <= newest:
        raise ValueError(
            f"{path} already has a checkpoint of step {newest}, so step {step} can not "
            "be saved there. Give a higher step, or another directory."
        )
    check_no_links(path, step, keep)
    leaves, _ = _tree.flatten(tree)
    _tree.check_arrays(leaves)
    check_names(leaves)
    check_leaves(leaves)
    _tree.check_shared(leaves)
    nodes = _tree.find_tables(tree, tables)
    warn_of_losses(leaves, nodes)
    if prefetcher is not None:
        _finished(path)  # else a crash could leave a checkpoint whose commit is gone
    tags = _below.commit(prefetcher, tree, nodes, step)
    own = _apart.saved(leaves, nodes)
    leaves, nodes = own.leaves, own.nodes
    check_names(leaves)
    leaves, rows = _uneven.plain(_tiers.plain(leaves, nodes), nodes)
    stored = {
        at: jax.ShapeDtypeStruct((rows[at], *leaf.shape[1:]), leaf.dtype)
        if at in rows
        else leaf
        for at, leaf in leaves.items()
    }
    fields = {
        "format_version": FORMAT_VERSION,
        "step": step,
        "index": index_layout(),
        "stores": tags,
        "store_processes": jax.process_count(),
        "tables": {
            "/".join(at): node.schema.to_json(secret=True) for at, node in nodes.items()
        },
        "leaves": {"/".join(at): describe(leaf) for at, leaf in stored.items()},
        "pieces": [
            "/".join(at)
            for at, leaf in leaves.items()
            if piece_shape(leaf, at in rows) is not None
        ],
    }
    stored = {at: as_stored(leaf) for at, leaf in leaves.items()}
    tree, room = _tree.nested(stored), int(host_gigabytes * 1e9)
    with _write_errors(path), _interrupts(path):
        manager = _manager(path, keep)
        _orbax.save(manager, step, tree, fields, host_bytes=room, rows=rows)
        if wait:
            manager.wait_until_finished()


def _check_keep(keep: Any) -> None:
    if keep is None:
        return
    if not is_whole(keep) or keep < 1:
        raise ValueError(
            f"keep must be a whole number of 1 or more, not {keep!r}: so many of the "
            "newest checkpoints stay. None keeps all."
        )


def wait(directory: Directory | None = None) -> None:
    """Returns when what ``save`` has begun is on the disk.

    Args:
      directory: one of them, or all if None.
    """
    for path in list(_managers) if directory is None else [resolved(directory)]:
        _finished(path)


def _finished(path: FilePath) -> None:
    if path in _managers:
        with _write_errors(path):
            _managers[path][1].wait_until_finished()


@contextlib.contextmanager
def _interrupts(path: FilePath) -> Iterator[None]:
    """After Ctrl-C, lets the next save begin with a manager that deletes drafts."""
    before = set(threading.enumerate())
    try:
        yield
    except Exception:
        raise
    except BaseException:
        if path in _managers:
            _managers[path] = _INTERRUPTED, _managers[path][1]
        _left[path] = [t for t in threading.enumerate() if t not in before]
        raise


@contextlib.contextmanager
def _write_errors(path: FilePath) -> Iterator[None]:
    """``disk_errors``, and what tensorstore says of the disk in a ``ValueError``."""
    with disk_errors(path):
        try:
            yield
        except ValueError as error:
            found = _OS_ERROR.search(str(error))
            if found is None:
                raise
            number = int(found[1] or found[2])
            raise OSError(number, os.strerror(number), str(path)) from error


def _end_manager(path: FilePath, alone: bool) -> None:
    """Closes a manager; an interrupt on the way leaves it to the next call."""
    was_interrupted = _managers[path][0] is _INTERRUPTED
    ignored = (Exception,) if was_interrupted else ()
    with contextlib.suppress(*ignored):
        _finished(path)
        _managers[path][1].close()
    _managers.pop(path, None)
    if was_interrupted and alone:
        _remove_drafts(path)


def _remove_drafts(path: FilePath) -> None:
    """Deletes what an interrupted save began, once all threads but pools have ended."""
    until = time.monotonic() + _PATIENCE
    for thread in _left.get(path, ()):
        if not thread.name.startswith(_POOLS):
            thread.join(max(0, until - time.monotonic()))
    quiet = time.monotonic() + _QUIET
    while time.monotonic() < min(quiet, until):
        if _remove_now(path):
            quiet = time.monotonic() + _QUIET
        time.sleep(0.01)


def _remove_now(path: FilePath) -> bool:
    """Deletes drafts; returns whether there were some."""
    drafts = list(path.glob(f"*{DRAFT}*"))
    for draft in drafts:
        shutil.rmtree(draft, ignore_errors=True)  # which follows no links
    return bool(drafts)


def _finish() -> None:
    """Completes pending saves when the program ends; errors can only be printed."""
    for path, (_, manager) in _managers.items():
        try:
            manager.wait_until_finished()
        except Exception as error:
            print(
                f"The last checkpoint in {path} is not complete ({error}). Call "
                "jde.checkpoint.wait() before the program ends.",
                file=sys.stderr,
            )


def describe(leaf: Any) -> list[Any]:
    """Shape and dtype of a leaf, as JSON keeps them."""
    if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct | np.ndarray):
        return [list(leaf.shape), str(leaf.dtype)]
    return [[], type(leaf).__name__]


def _manager(path: FilePath, keep: int | None) -> Any:
    from jax_dynemb._src.files.checkpoint import orbax as _orbax

    if path in _managers and _managers[path][0] == keep:
        if path in _left and _present[path].alone():
            _finished(path)
            _remove_now(path)  # what threads of an interrupted save wrote later
        return _managers[path][1]
    path.mkdir(parents=True, exist_ok=True)
    if path not in _present:
        _present[path] = Presence(path)
    # Processes of one job wait for each other, and begin together.
    alone = jax.process_count() > 1 or _present[path].alone()
    if path in _managers:
        _end_manager(path, alone)
    if not _managers:
        before_threads_end(_finish)
    _managers[path] = (keep, _orbax.manager(path, keep, alone))
    return _managers[path][1]


def before_threads_end(function: Callable[[], None]) -> None:
    """Calls a function at the end of the main thread.

    What ``atexit`` calls comes after ``concurrent.futures`` has closed, and orbax
    writes with its threads: the last checkpoint of a script would be lost. Python has
    no public way to come before (python/cpython#86813), and 3.12.0 to 3.12.2 start no
    thread even there (#113964).
    """
    register = getattr(threading, "_register_atexit", atexit.register)
    register(function)


def warn_of_losses(leaves: Mapping[Path, Any], nodes: Mapping[Path, TableNode]) -> None:
    """Warns of tables that are never updated, or that have refused ids."""
    for node in nodes.values():
        coll = node.coll
        counters = leaves.get((*node.arrays, "counters"))
        dynamic = node.name in coll.engine.catalog.dynamic
        if not dynamic or not getattr(counters, "is_fully_addressable", False):
            continue
        own = np.asarray(counters)[coll.hash_engine.counter_rows(node.name)]
        shard.warn_of_losses(node.config, shard.counter_totals(own))
