# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Iterates over batches one ahead, so that rows move while a step computes."""

from __future__ import annotations

import collections
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import jax
from flax import nnx

from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.nnx.coming import Announced, announce, withdraw
from jax_dynemb._src.nnx.row_prefetcher import RowPrefetcher, prefetch_rows
from jax_dynemb._src.nnx.table_module import TableModule
from jax_dynemb._src.pipeline import Prefetched, prefetch
from jax_dynemb._src.stores import Store
from jax_dynemb._src.table import Tables
from jax_dynemb._src.tiers import on_device, tables_with_stores

_IdsOf = Callable[[Any], Mapping[str, Any]]


def overlap(
    model: Any,
    batches: Iterable[Any],
    *,
    ids: _IdsOf | None = None,
    size: int = 2,
    sharding: Any = None,
    stores: Mapping[str, Store] | None = None,
) -> Overlap:
    """Iterates over batches; rows of the next one move while a step computes.

    Of tables with a tier, rows that the next batch needs come to device memory between
    the lookup and the update of a step. Results are those of the plain loop, bit for
    bit. The step is a function of ``jde.nnx.jit`` that is called with the model and
    uses ``jde.nnx.value_and_grad``. A thread has the next batches ready, as
    ``jde.pipeline.prefetch``. Above a store it also brings rows from there, as
    ``jde.nnx.prefetch_rows``.

    Args:
      model: the first Module that the step is called with.
      batches: pytrees; above a store as for ``jde.nnx.prefetch_rows``, on the host.
      ids: finds in a batch the ids by feature. None: a dict in the batch has features
        among its keys, or ``jde.torchrec`` finds its KeyedJaggedTensor. Of a model with
        one feature a batch may be the ids, or begin with them.
      size: batches that are ready or in the making.
      sharding: of batches, as for ``jde.pipeline.prefetch``.
      stores: by table name, as for ``jde.nnx.prefetch_rows``.

    Returns:
      An iterator; ``close()``, or ``with``, ends its thread, and so does leaving the
      loop.

    Raises:
      TypeError: ``batches`` is no iterator, or (when its turn comes) a batch has no
        ids.
      ValueError: the model has no tables, or ``size`` is less than 1.

    Example:
      >>> for batch in jde.pipeline.overlap(model, batches):  # doctest: +SKIP
      ...     loss = step(model, optimizer, batch)
    """
    if not isinstance(batches, Iterable):
        raise TypeError(
            f"overlap takes an iterator of batches, not {kind_of(batches)}: call the "
            "generator function, or write iter(...)."
        )
    return Overlap(model, batches, ids, size, sharding, stores)


class Overlap:
    """Yields batches, and announces to the steps what comes behind each.

    Attributes:
      prefetcher: above a store, the one that brings rows from there; else None.
    """

    prefetcher: RowPrefetcher | None = None

    def __init__(
        self,
        model: Any,
        batches: Iterable[Any],
        ids: _IdsOf | None,
        size: int,
        sharding: Any,
        stores: Mapping[str, Store] | None = None,
    ):
        """Starts the thread."""
        modules = _collections_of(model)
        ids_of = ids or _IdsFinder(modules)
        above = [m for m in modules if tables_with_stores(m.coll)]
        if len(above) > 1:
            raise ValueError(
                f"overlap prefetches rows from the stores of one collection, not of "
                f"{len(above)}: put these tables into one collection."
            )
        self._pairs: _Pairs | _PairsAboveStore
        if above:
            looked_at = _LookedAt(batches)
            options = {"depth": size, "sharding": sharding, "stores": stores}
            self.prefetcher = prefetch_rows(above[0], looked_at, **options)
            self._pairs = _PairsAboveStore(
                self.prefetcher, looked_at, above[0].coll, ids_of, sharding
            )
        else:
            self._pairs = _Pairs(prefetch(batches, size, sharding), ids_of)
        self._announced, self._is_open = Announced(model, {}), True
        self._yielded = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self._is_open:
            raise StopIteration
        try:
            batch, self._announced.ids = next(self._pairs)
        except BaseException:
            self._end()
            raise
        self._yielded += 1
        announce(self._announced)
        return batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_is_open", False):
            self.close()

    def close(self) -> None:
        """Ends the thread; steps take no more ids."""
        self._end()
        self._is_open = False
        self._pairs.close()

    def _end(self) -> None:
        """Announces nothing more; a prefetcher stays open until ``close``."""
        withdraw(self._announced)
        if self._yielded and not self._announced.taken:
            warnings.warn(_NOT_TAKEN, stacklevel=3)
        self._yielded = 0


class _Pairs:
    """Yields pairs: a batch, and the ids of the one behind it; of the last, its own."""

    def __init__(self, batches: Prefetched[Any], ids_of: _IdsOf):
        self._batches, self._ids_of = batches, ids_of
        self._following: list[Any] | None = None  # one batch; none has been taken yet

    def __next__(self) -> tuple[Any, Mapping[str, Any]]:
        if self._following is None:
            self._following = self._taken()
        if not self._following:
            raise StopIteration
        (batch,), self._following = self._following, self._taken()
        if self._following:
            return batch, self._ids_of(self._following[0])
        return batch, self._ids_of(batch)

    def _taken(self) -> list[Any]:
        return list(itertools.islice(self._batches, 1))

    def close(self) -> None:
        self._batches.close()


class _LookedAt:
    """Remembers the batches that a prefetcher has read ahead."""

    def __init__(self, batches: Iterable[Any]):
        self.read: collections.deque[Any] = collections.deque()
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            self.read.append(batch)
            yield batch


class _PairsAboveStore:
    """Yields such pairs while a prefetcher brings rows of each batch from its store.

    The prefetcher reads some batches ahead. What it has read is known here. Where that
    is nothing yet, rows of the next batch come in its own lookup.
    """

    def __init__(
        self,
        prefetcher: RowPrefetcher,
        looked_at: _LookedAt,
        coll: Tables,
        ids_of: _IdsOf,
        sharding: Any,
    ):
        self._prefetcher, self._read = prefetcher, looked_at.read
        self._coll, self._ids_of, self._sharding = coll, ids_of, sharding

    def __next__(self) -> tuple[Any, Mapping[str, Any]]:
        batch = next(self._prefetcher)
        own = self._read.popleft()
        following = self._read[0] if self._read else None
        given = self._ids_of(own if following is None else following)
        if not given.keys() <= set(self._coll.features):  # a KeyedJaggedTensor
            return batch, given
        return batch, on_device(self._coll, given, self._sharding)

    def close(self) -> None:
        self._prefetcher.close()


class _IdsFinder:
    """Finds in a batch what the collections of a model know as their ids."""

    def __init__(self, modules: Sequence[TableModule]):
        self._modules = modules
        self._features = {f for module in modules for f in module.coll.features}

    def __call__(self, batch: Any) -> Mapping[str, Any]:
        found: dict[str, Any] = {}

        def is_known(node: Any) -> bool:
            parts = [module.known_in(node) for module in self._modules]
            for part in parts:
                found.update(part)
            return any(parts)

        jax.tree.leaves(batch, is_leaf=is_known)
        if found:
            return found
        first = batch
        while isinstance(first, tuple | list) and first:
            first = first[0]
        if isinstance(first, jax.Array | Jagged) and len(self._features) == 1:
            return dict.fromkeys(self._features, first)
        raise TypeError(
            f"overlap finds no ids of the features {sorted(self._features)} in a batch "
            f"that is {kind_of(batch)}. Say where they are: ids=lambda batch: "
            "{'feature': ids, ...}."
        )


def _collections_of(model: Any) -> list[TableModule]:
    found = [m for _, m in nnx.iter_graph(model) if isinstance(m, TableModule)]
    if not found:
        raise ValueError(
            f"overlap takes a Module with tables, not {kind_of(model)}: pass the model "
            "that the step is called with."
        )
    return found


_NOT_TAKEN = (
    "overlap: no step has taken the ids that were announced, so no row has moved "
    "ahead. Compile the step by jde.nnx.jit, without in_shardings, and call it with "
    "the same model as an argument."
)
