# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Saves and restores through orbax.

The module is imported when it is needed: orbax is optional, and slow to import.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_dynemb._src.files.checkpoint import checksums as _checksums
from jax_dynemb._src.files.checkpoint.layout import ITEM, SCHEMA_FILE
from jax_dynemb._src.files.checkpoint.pieces import Grid, describe_pieces, piece_shape
from jax_dynemb._src.files.checkpoint.tree import nested
from jax_dynemb._src.files.checkpoint.write_pieces import Writing
from jax_dynemb._src.files.disk import write_json

try:
    import orbax.checkpoint as ocp
except ImportError as error:
    raise ImportError(
        "jde.checkpoint needs orbax: pip install 'jax-dynemb[checkpoint]'."
    ) from error

_PLAIN_TYPES = (int, float, bytes, np.number, np.ndarray, str)
_NO_REPLICA = -1


class Arrays(ocp.type_handlers.ArrayHandler):
    """orbax's own, which only describes large arrays; ``Writing`` writes them."""

    def __init__(self, large: set[str]) -> None:
        """Makes a handler that describes the arrays of these names."""
        self._large = large
        vars(self).update(vars(ocp.type_handlers.get_type_handler(jax.Array)))

    async def serialize(
        self, values: Sequence[Any], infos: Sequence[Any], args: Any = None
    ) -> Sequence[Any]:
        """Begins to write some arrays."""
        everything = list(zip(values, infos, args, strict=True))
        large = [each for each in everything if each[1].name in self._large]
        small = [each for each in everything if each[1].name not in self._large]
        store = _OneFile(self._array_metadata_store, bool(large) + bool(small))
        whole = ocp.type_handlers.ArrayHandler(array_metadata_store=store)  # pyright: ignore
        describing = ocp.type_handlers.ArrayHandler(
            # Of a replica that there is not, no numbers are written.
            replica_id=_NO_REPLICA,
            use_replica_parallel=False,
            array_metadata_store=store,  # pyright: ignore
        )
        futures: list[Any] = []
        for handler, some in ((whole, small), (describing, large)):
            if some:
                futures += await handler.serialize(*map(list, zip(*some, strict=True)))
        return futures


class _OneFile:
    """Collects the array metadata of several handlers; orbax expects one file of it."""

    def __init__(self, store: Any, calls: int):
        self._store, self._calls = store, calls
        self._known: list[Any] = []
        self._lock = threading.Lock()

    async def write(
        self, checkpoint_dir: Any, array_metadatas: Sequence[Any], process_index: int
    ) -> None:
        with self._lock:
            self._known += array_metadatas
            self._calls -= 1
            last = self._calls == 0
        if last:
            await self._store.write(checkpoint_dir, self._known, process_index)


class Handler(ocp.PyTreeCheckpointHandler):
    """orbax's own, which adds files before a checkpoint counts as complete."""

    _fields: Mapping[str, Any]
    _pieces: Mapping[str, Grid]  # shapes, not arrays: these may go

    def __init__(self) -> None:
        self._large: set[str] = set()
        types = [(t, ocp.type_handlers.get_type_handler(t)) for t in _PLAIN_TYPES]
        super().__init__(
            use_compression=False,
            use_ocdbt=False,
            type_handler_registry=ocp.type_handlers.create_type_handler_registry(
                *types, (jax.Array, Arrays(self._large))
            ),
        )

    async def async_save(self, directory: Any, *positional: Any, args: Any) -> Any:
        """Starts to write; remembers the JSON for ``finalize``.

        orbax ends one save before the next.
        """
        self._fields = args.fields
        self._pieces = {name: grid for name, (_, grid) in args.large.items()}
        self._large.clear()
        self._large.update(self._pieces)
        futures = await super().async_save(directory, *positional, args=args)
        pieces = Writing(Path(str(directory)), args.large, args.host_bytes)
        return [*(futures or ()), pieces]

    def finalize(self, directory: Any) -> None:
        """Called when all arrays are written, before the directory gets its name."""
        with _without_remark():
            super().finalize(directory)
        if jax.process_index() == 0:
            path = Path(str(directory))
            for name, grid in self._pieces.items():
                describe_pieces(path / name, grid)
            write_json(path / SCHEMA_FILE, self._fields)
            _checksums.write_checksums(path)


@contextlib.contextmanager
def _without_remark() -> Iterator[None]:
    """Orbax warns that there is no store to merge; there is none on purpose."""
    logger = logging.getLogger("absl")

    def is_other(record: logging.LogRecord) -> bool:
        return "Skipping merge of OCDBT" not in record.getMessage()

    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)


@ocp.args.register_with_handler(Handler, for_save=True)
@dataclasses.dataclass
class Save(ocp.args.PyTreeSave):
    """Holds what ``Handler`` saves: a tree, and the fields of the JSON beside it."""

    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # The arrays that are written in pieces, with their grids, by the name of their
    # directories.
    large: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    host_bytes: int = 0  # so much of them may be on the host at a time


@ocp.args.register_with_handler(Handler, for_restore=True)
@dataclasses.dataclass
class Restore(ocp.args.PyTreeRestore):
    """Holds what ``Handler`` restores."""


def manager(directory: Path, keep: int | None, alone: bool) -> ocp.CheckpointManager:
    """Makes a directory's manager; ``alone``, it deletes what a killed one left."""
    return ocp.CheckpointManager(
        directory,
        item_handlers={ITEM: Handler()},
        options=ocp.CheckpointManagerOptions(
            max_to_keep=keep,
            cleanup_tmp_directories=alone,
            async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
        ),
    )


def save(
    manager: ocp.CheckpointManager,
    step: int,
    tree: Any,
    fields: Mapping[str, Any],
    host_bytes: int,
    rows: Mapping[tuple[str, ...], int],
) -> None:
    """Starts to write nested dicts of leaves, and the JSON's fields.

    Arrays in ``rows``, by path, are written up to that row.
    """
    large = {}
    for keys, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        path = tuple(key.key for key in keys)
        piece = piece_shape(leaf, path in rows)
        if piece is not None:
            shape = (rows.get(path, leaf.shape[0]), *leaf.shape[1:])
            large[".".join(path)] = (leaf, Grid(shape, piece))
    item = Save(
        tree,
        fields=fields,
        large=large,
        host_bytes=host_bytes,
    )
    manager.save(step, args=ocp.args.Composite(**{ITEM: item}))


def restore_leaves(
    step_directory: Path, leaves: Mapping[tuple[str, ...], Any]
) -> dict[tuple[str, ...], Any]:
    """Reads leaves by path; arrays are ``jax.ShapeDtypeStruct`` with shardings."""
    tree = nested(leaves)
    args = Restore(
        tree,
        restore_args=ocp.checkpoint_utils.construct_restore_args(tree),
        partial_restore=True,
    )
    with ocp.Checkpointer(Handler()) as checkpointer:
        read = checkpointer.restore(step_directory / ITEM, args=args)
    return {
        path: functools.reduce(lambda x, part: x[part], path, read) for path in leaves
    }
