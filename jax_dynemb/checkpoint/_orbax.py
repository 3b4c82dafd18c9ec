# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What is asked of orbax. Imported when it is needed: it is optional, and slow."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from jax_dynemb.checkpoint import _checksums
from jax_dynemb.checkpoint._layout import ITEM, SCHEMA_FILE

try:
    import orbax.checkpoint as ocp
except ImportError as error:
    raise ImportError(
        "jde.checkpoint needs orbax: pip install 'jax-dynemb[checkpoint]'."
    ) from error

# Arrays are written and read in pieces of about this size, side by side.
_PIECE_BYTES = 1 << 26


class Handler(ocp.PyTreeCheckpointHandler):
    """orbax's own, which adds two files before a checkpoint counts as complete."""

    _fields: Mapping[str, Any]

    async def async_save(self, directory: Any, *positional: Any, args: Any) -> Any:
        """Remembers the JSON for ``finalize``; orbax ends one save before the next."""
        self._fields = args.fields
        return await super().async_save(directory, *positional, args=args)

    def finalize(self, directory: Any) -> None:
        """Called when all arrays are written, before the directory gets its name."""
        super().finalize(directory)
        if jax.process_index() == 0:
            path = Path(str(directory))
            _checksums.write_json(path / SCHEMA_FILE, self._fields)
            _checksums.write_checksums(path)


@ocp.args.register_with_handler(Handler, for_save=True)
@dataclasses.dataclass
class Save(ocp.args.PyTreeSave):
    """What ``Handler`` saves: a tree, and the fields of the JSON beside it."""

    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@ocp.args.register_with_handler(Handler, for_restore=True)
@dataclasses.dataclass
class Restore(ocp.args.PyTreeRestore):
    """What ``Handler`` restores."""


def manager(directory: Path, keep: int | None) -> ocp.CheckpointManager:
    """A manager of one directory; it deletes what a killed process left behind."""
    return ocp.CheckpointManager(
        directory,
        item_handlers={ITEM: Handler(use_compression=False)},
        options=ocp.CheckpointManagerOptions(
            max_to_keep=keep, cleanup_tmp_directories=True
        ),
    )


def save(
    manager: ocp.CheckpointManager, step: int, tree: Any, fields: Mapping[str, Any]
) -> None:
    """Starts to write one checkpoint."""
    args = jax.tree.map(_save_args, tree)
    item = Save(tree, save_args=args, fields=fields)
    manager.save(step, args=ocp.args.Composite(**{ITEM: item}))


def restore(step_directory: Path, tree: Any) -> Any:
    """Reads some leaves of a checkpoint.

    Args:
      step_directory: of the checkpoint.
      tree: nested dicts with ``jax.ShapeDtypeStruct`` (with sharding) for arrays.
    """
    args = Restore(
        tree,
        restore_args=ocp.checkpoint_utils.construct_restore_args(tree),
        partial_restore=True,
    )
    with ocp.Checkpointer(Handler(use_compression=False)) as checkpointer:
        return checkpointer.restore(step_directory / ITEM, args=args)


def _save_args(leaf: Any) -> ocp.SaveArgs:
    """Pieces of whole rows: a row of several devices' arrays divides evenly."""
    if not isinstance(leaf, jax.Array) or leaf.ndim == 0 or leaf.nbytes <= _PIECE_BYTES:
        return ocp.SaveArgs()
    rows = leaf.sharding.shard_shape(leaf.shape)[0]
    row_bytes = leaf.nbytes // leaf.shape[0]
    sizes = [row_bytes * d for d in _divisors(rows)]
    # The largest that is small enough, unless the divisors leave only tiny ones.
    fitting = [size for size in sizes if _PIECE_BYTES // 16 <= size <= _PIECE_BYTES]
    above = [size for size in sizes if size > _PIECE_BYTES]
    return ocp.SaveArgs(chunk_byte_size=max(fitting) if fitting else min(above))


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in small]
