# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Moves rows between tables and their stores while steps run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.stores import Store
from jax_dynemb._src.table import Tables
from jax_dynemb._src.tiers.batches import Fed
from jax_dynemb._src.tiers.row_prefetcher import RowPrefetcher
from jax_dynemb._src.tiers.stores import tables_with_stores


def prefetch_rows(
    coll: Tables,
    batches: Iterable[Any],
    *,
    depth: int = 2,
    stores: Mapping[str, Store] | None = None,
    sharding: Any = None,
    waiting_megabytes: float = 256,
    evaluate: bool = False,
) -> RowPrefetcher:
    """Iterates over batches, with the rows of each in its tables in time.

    It moves rows between a store and its table. ``Tables.prefetch`` moves rows from
    host memory to the device in a step, ``jde.pipeline.prefetch`` copies batches there.

    Rows that a table evicts go into its store, and those of coming batches come back,
    with scores and optimizer states. A thread reads and writes the stores, ``depth``
    batches ahead. Rows, and where they lie, change no result: a row is trained as in
    a table that has room for all rows.

    Where several processes share a mesh, all of them make the same calls of the
    prefetcher. Each has a store with the rows of its devices. Each gives its part of a
    batch, in equal shapes, but ``Jagged`` ids whole. All prefetchers end with the
    shortest.

    Args:
      coll: the tables; those whose tier has no store are passed over.
      batches: ids by feature on the host: NumPy integers, ``Jagged``, or words of
        ``jde.ids``. Or tuples that begin with such ids. A second thread iterates.
      depth: batches whose rows are on their way, from 1 on. The rows of so many batches
        need room in the tables together.
      stores: by table name. None: those of the tiers are opened, and closed at the
        end.
      sharding: of ids on a mesh; None: the default device, or of several processes
        split over the axes of the tables.
      waiting_megabytes: most memory of a table's rows that its store refuses.
      evaluate: the batches are for ``find`` or ``lookup(touch=False, insert=False)``.
        The rows of each come up in its call of ``next``, and none is held for it. A
        prefetcher over the stores of one that is open works in this way, too.

    Returns:
      A prefetcher; ``close()``, or ``with``, ends its threads.

    Raises:
      NotImplementedError: two processes have the same shard of the tables, or their
        shards do not follow each other.
      ValueError: no table has a store, the depth is less than 1, or the memory is no
        number from 0 on. Or an open prefetcher has only some of the stores.
      TypeError: ``batches`` is no iterator.
      DamagedFileError, RuntimeError, TypeError: as ``open_stores``.

    Example:
      >>> with jde.tiers.prefetch_rows(coll, batches) as prefetcher:  # doctest: +SKIP
      ...     for _ in range(steps):
      ...         ids, state = prefetcher.next(state)
      ...         state = step(state, ids)
    """
    return prefetch_rows_of_module(
        coll,
        batches,
        None,
        depth=depth,
        stores=stores,
        sharding=sharding,
        waiting_megabytes=waiting_megabytes,
        evaluate=evaluate,
    )


def prefetch_rows_of_module(
    coll: Tables,
    batches: Iterable[Any],
    fed: Fed | None,
    *,
    depth: int = 2,
    stores: Mapping[str, Store] | None = None,
    sharding: Any = None,
    waiting_megabytes: float = 256,
    evaluate: bool = False,
) -> RowPrefetcher:
    """Does so for batches in which ``fed`` finds the ids; None: they begin with ids."""
    if not isinstance(batches, Iterable):
        raise TypeError(
            f"prefetch_rows takes an iterator of batches, not {kind_of(batches)}: call "
            "the generator function, or write iter(...)."
        )
    _check(coll, depth, waiting_megabytes)
    return RowPrefetcher(
        coll,
        batches,
        fed,
        depth=depth,
        stores=stores,
        sharding=sharding,
        waiting_megabytes=waiting_megabytes,
        evaluate=evaluate,
    )


def _check(coll: Tables, depth: int, waiting_megabytes: float) -> None:
    if not is_whole(depth) or depth < 1:
        raise ValueError(
            f"prefetch_rows: depth must be a number from 1 on, not {depth!r}"
        )
    is_number = isinstance(waiting_megabytes, (int, float))
    if not is_number or not waiting_megabytes >= 0:  # so NaN is none either
        raise ValueError(
            "prefetch_rows: waiting_megabytes must be a number from 0 on, not "
            f"{waiting_megabytes!r}"
        )
    if not tables_with_stores(coll):
        raise ValueError(
            "No table has a store below it. Give one tier=jde.tiers.ssd(path), or "
            "iterate over the batches themselves."
        )
