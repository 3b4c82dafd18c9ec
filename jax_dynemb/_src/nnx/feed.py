# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Feeds of tables with stores, for modules that keep the state of their tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from jax_dynemb._src.engines import States
from jax_dynemb._src.nnx.table_module import TableModule
from jax_dynemb._src.stores import Store
from jax_dynemb._src.tiers import Ahead, ahead_of_module


def ahead(module: TableModule, batches: Iterable[Any], **options: Any) -> Feed:
    """Iterates over batches, with the rows of each in the tables of a module in time.

    Args:
      module: the collection, such as ``model.sparse``. Some table has a tier with a
        store.
      batches: as for ``jde.tiers.ahead``; or what the module takes: pytrees with its
        KeyedJaggedTensor of ``jde.torchrec``, or arrays of ``jde.one_embedding``.
      options: ``depth``, ``stores``, ``sharding``, ``waiting_megabytes`` and
        ``evaluate`` of it.

    Returns:
      A feed; ``close()``, or ``with``, ends its threads.

    Raises:
      NotImplementedError: as ``jde.tiers.ahead``, of a mesh over several processes.
      ValueError: no table has a store, or an option is out of range.

    Example:
      >>> with jde.nnx.ahead(model.sparse, batches) as feed:  # doctest: +SKIP
      ...     for ids in feed:
      ...         loss = step(model, optimizer, ids)
    """
    feed = ahead_of_module(module.coll, batches, module.fed, **options)
    return Feed(module, feed)


class Feed:
    """Yields batches whose rows are in their tables; ``jde.nnx.ahead`` makes it.

    Train once with each batch before the next one. Other calls are those of
    ``jde.tiers.Ahead``, without the state.
    """

    def __init__(self, module: TableModule, feed: Ahead):
        """Wraps a feed of the tables of a module."""
        self._module, self._feed = module, feed

    @property
    def stores(self) -> Mapping[str, Store]:
        """The stores by table name."""
        return self._feed.stores

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        ids, state = self._of_tables().next(self._module.get_state())
        self._module.set_state(state)
        return ids

    def insert(
        self, ids: Mapping[str, Any], rows: Mapping[str, Any], **more: Any
    ) -> None:
        """Writes rows, see ``jde.tiers.Ahead.insert``.

        Args:
          ids: by table name, on the host.
          rows: by table name.
          more: ``optimizer_state`` and ``scores``.
        """
        feed = self._of_tables()
        self._change(lambda state: feed.insert(state, ids, rows, **more))

    def erase(self, ids: Mapping[str, Any]) -> None:
        """Removes rows from the tables and below.

        Args:
          ids: by table name, on the host.
        """
        feed = self._of_tables()
        self._change(lambda state: feed.erase(state, ids))

    def fetch(self, ids: Mapping[str, Any]) -> dict[str, int]:
        """Brings the rows of some ids into the tables, see ``jde.tiers.Ahead.fetch``.

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
        """Commits every store; ``jde.checkpoint.save(..., feed=feed)`` calls it.

        Args:
          state: of the tables.
          tag: of the commit.
          step: of the training.
        """
        self._of_tables().commit(state, tag, step)

    def stats(self) -> dict[str, int | float]:
        """Counts what has moved, see ``jde.tiers.Ahead.stats``."""
        return self._feed.stats()

    def close(self) -> None:
        """Ends the threads, once the rows that were taken are in the stores."""
        self._feed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._feed.__exit__(*error)

    def _of_tables(self) -> Ahead:
        """Returns the feed, for the tables in their present size."""
        self._feed.use(self._module.coll)
        return self._feed

    def _change(self, change: Callable[[States], States]) -> None:
        self._module.set_state(change(self._module.get_state()))
