# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Prefetches rows from stores, for modules that keep the state of their tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from jax_dynemb._src import tiers as _tiers
from jax_dynemb._src.engines import States
from jax_dynemb._src.nnx.table_module import TableModule
from jax_dynemb._src.stores import Store


def prefetch_rows(
    module: TableModule, batches: Iterable[Any], **options: Any
) -> RowPrefetcher:
    """Iterates over batches, with the rows of each in the tables of a module in time.

    Args:
      module: the collection, such as ``model.sparse``. Some table has a tier with a
        store.
      batches: as for ``jde.tiers.prefetch_rows``; or what the module takes: pytrees
        with its KeyedJaggedTensor of ``jde.torchrec``, or arrays of
        ``jde.one_embedding``.
      options: ``depth``, ``stores``, ``sharding``, ``waiting_megabytes`` and
        ``evaluate`` of it.

    Returns:
      A prefetcher; ``close()``, or ``with``, ends its threads.

    Raises:
      NotImplementedError: as ``jde.tiers.prefetch_rows``, of a mesh over several
        processes.
      ValueError: no table has a store, or an option is out of range.

    Example:
      >>> prefetcher = jde.nnx.prefetch_rows(model.sparse, batches)  # doctest: +SKIP
      >>> with prefetcher:  # doctest: +SKIP
      ...     for ids in prefetcher:
      ...         loss = step(model, optimizer, ids)
    """
    prefetcher = _tiers.prefetch_rows_of_module(
        module.coll, batches, module.fed, **options
    )
    return RowPrefetcher(module, prefetcher)


class RowPrefetcher:
    """Yields batches whose rows are in their tables.

    ``jde.nnx.prefetch_rows`` makes it.

    Train once with each batch before the next one. Other calls are those of
    ``jde.tiers.RowPrefetcher``, without the state.
    """

    def __init__(self, module: TableModule, prefetcher: _tiers.RowPrefetcher):
        """Wraps a prefetcher of the tables of a module."""
        self._module, self._prefetcher = module, prefetcher

    @property
    def stores(self) -> Mapping[str, Store]:
        """The stores by table name."""
        return self._prefetcher.stores

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        ids, state = self._of_tables().next(self._module.get_state())
        self._module.set_state(state)
        return ids

    def insert(
        self, ids: Mapping[str, Any], rows: Mapping[str, Any], **more: Any
    ) -> None:
        """Writes rows, see ``jde.tiers.RowPrefetcher.insert``.

        Args:
          ids: by table name, on the host.
          rows: by table name.
          more: ``optimizer_state`` and ``scores``.
        """
        prefetcher = self._of_tables()
        self._change(lambda state: prefetcher.insert(state, ids, rows, **more))

    def erase(self, ids: Mapping[str, Any]) -> None:
        """Removes rows from the tables and below.

        Args:
          ids: by table name, on the host.
        """
        prefetcher = self._of_tables()
        self._change(lambda state: prefetcher.erase(state, ids))

    def fetch(self, ids: Mapping[str, Any]) -> dict[str, int]:
        """Brings the rows of some ids into the tables.

        See ``jde.tiers.RowPrefetcher.fetch``.

        Args:
          ids: by table name, on the host.

        Returns:
          By table, how many distinct ids have a row below that found no room.
        """
        state, absent = self._of_tables().fetch(self._module.get_state(), ids)
        self._module.set_state(state)
        return absent

    def drain(self) -> None:
        """Puts the rows that have departed into the stores, and waits for it."""
        self._change(self._of_tables().drain)

    def commit(self, state: States, tag: str, step: int | None = None) -> None:
        """Commits every store; ``jde.checkpoint.save(prefetcher=...)`` calls it.

        Args:
          state: of the tables.
          tag: of the commit.
          step: of the training.
        """
        self._of_tables().commit(state, tag, step)

    def stats(self) -> dict[str, int | float]:
        """Counts what has moved, see ``jde.tiers.RowPrefetcher.stats``."""
        return self._prefetcher.stats()

    def close(self) -> None:
        """Ends the threads, once the rows that were taken are in the stores."""
        self._prefetcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._prefetcher.__exit__(*error)

    def _of_tables(self) -> _tiers.RowPrefetcher:
        """Returns the prefetcher, for the tables in their present size."""
        self._prefetcher.use(self._module.coll)
        return self._prefetcher

    def _change(self, change: Callable[[States], States]) -> None:
        self._module.set_state(change(self._module.get_state()))
