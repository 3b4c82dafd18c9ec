# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Collections of dynamic embedding tables as nnx modules."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import Routed
from jax_dynemb._src.nnx.table_module import Batch, Ids, TableModule
from jax_dynemb._src.table import configs_of
from jax_dynemb._src.tt import TTConfig


class EmbeddingBagCollection(TableModule):
    """Looks up dynamic tables, and pools the rows of each bag of ids into one.

    Args:
      tables: the tables; one that says nothing about pooling gets "sum".
      rngs: the seed of the initial rows is drawn from ``rngs.params()``.
      mesh: devices to shard the rows over, or None.
      axis: the mesh axis for it, or several; all axes if None.
      options: ``share_arrays``, ``plan``, ``exchange_factor``, ``exchange_dtype``,
        ``exchange_pooled``, ``exchange_transport`` and ``devices_per_host`` of
        ``jde.Tables``. Or
        ``rows_of``, another collection: its tables of these names are looked up, and
        trained by both; it needs no ``rngs``. An update is one of each lookup.

    Example:
      >>> tables = [jde.TableConfig("cat", dim=16, capacity=1000)]
      >>> sparse = jde.nnx.EmbeddingBagCollection(tables, rngs=nnx.Rngs(0))
      >>> rows = sparse({"cat": jde.ids([[7, 8, -1], [9, -1, -1]])})
      >>> rows["cat"].shape
      (2, 16)
    """

    def __init__(
        self,
        tables: Iterable[TableConfig | TTConfig],
        *,
        rngs: nnx.Rngs | None = None,
        mesh: Mesh | None = None,
        axis: str | tuple[str, ...] | None = None,
        **options: Any,
    ):
        configs = configs_of(tables)
        pooled = [dataclasses.replace(t, pooling=t.pooling or "sum") for t in configs]
        super().__init__(pooled, rngs=rngs, mesh=mesh, axis=axis, **options)

    def __call__(
        self,
        ids: Batch,
        weights: Mapping[str, jax.Array] | None = None,
        *,
        scores: Mapping[str, Any] | None = None,
        counts: Mapping[str, jax.Array] | None = None,
        train: bool | None = None,
    ) -> dict[str, jax.Array]:
        """Looks up and pools the rows of some features.

        Args:
          ids: by feature, 64-bit ids from ``jde.ids``: [B] (one id a bag),
            [..., L] padded with -1, or ``jde.Jagged``. Or what ``route`` returned.
          weights: by feature, one number an id; differentiable. A routed batch has
            those that it was routed with; others take their place.
          scores: by table or by feature, for ``score_strategy="customized"``: as for
            ``jde.Tables.lookup``.
          counts: by feature, how many uses each id stands for; likewise.
          train: True inserts unseen ids; False reads only. Default: True until
            ``model.eval()``.

        Returns:
          By feature [B, dim] or [..., dim].

        Raises:
          TypeError: ids that JAX has truncated to 32 bits.
          ValueError: a training lookup where its inserts would be lost.
        """
        return self._lookup(ids, weights, scores, train, counts)

    def route(
        self, ids: Mapping[str, Ids], weights: Mapping[str, jax.Array] | None = None
    ) -> Routed:
        """Sends the ids of a batch to the devices that own them, ahead of its lookup.

        It reads no table, so one jitted step can look up the batch that was routed
        before and route the next one; see ``jde.Tables.route``.

        Args:
          ids: as for the call.
          weights: as for the call.

        Returns:
          A pytree to call this Module with. The result is that of the ids, bit for
          bit.

        Example:
          >>> @jde.nnx.jit
          ... def step(model, optimizer, routed, next_ids):
          ...     loss, grads = jde.nnx.value_and_grad(loss_fn)(model, routed)
          ...     optimizer.update(model, grads)
          ...     return loss, model.sparse.route(next_ids)
        """
        return self._route(ids, weights)


class EmbeddingCollection(TableModule):
    """Looks up dynamic tables, and returns one row for each id.

    Args:
      tables: the tables, without pooling.
      rngs: the seed of the initial rows is drawn from ``rngs.params()``.
      mesh: devices to shard the rows over, or None.
      axis: the mesh axis for it, or several; all axes if None.
      options: ``share_arrays``, ``plan``, ``exchange_factor``, ``exchange_dtype``,
        ``exchange_pooled``, ``exchange_transport`` and ``devices_per_host`` of
        ``jde.Tables``. Or
        ``rows_of``, another collection: its tables of these names are looked up, and
        trained by both; it needs no ``rngs``. An update is one of each lookup.

    Raises:
      ValueError: a table has pooling.
    """

    def __init__(
        self,
        tables: Iterable[TableConfig | TTConfig],
        *,
        rngs: nnx.Rngs | None = None,
        mesh: Mesh | None = None,
        axis: str | tuple[str, ...] | None = None,
        **options: Any,
    ):
        tables = configs_of(tables)
        for table in tables:
            if table.pooling is not None:
                raise ValueError(
                    f"table {table.name!r} has pooling={table.pooling!r}, but "
                    "EmbeddingCollection returns one row an id. Use "
                    "jde.nnx.EmbeddingBagCollection, or drop pooling."
                )
        super().__init__(tables, rngs=rngs, mesh=mesh, axis=axis, **options)

    def __call__(
        self,
        ids: Batch,
        *,
        scores: Mapping[str, Any] | None = None,
        counts: Mapping[str, jax.Array] | None = None,
        train: bool | None = None,
    ) -> dict[str, jax.Array]:
        """Looks up the rows of some features.

        Args:
          ids: by feature, 64-bit ids of shape [...], or ``jde.Jagged``. Or what
            ``route`` returned.
          scores: by table or by feature, for ``score_strategy="customized"``: as for
            ``jde.Tables.lookup``.
          counts: by feature, how many uses each id stands for; likewise.
          train: True inserts unseen ids; False reads only. Default: True until
            ``model.eval()``.

        Returns:
          By feature [..., dim]; [capacity, dim] for Jagged ids.
        """
        return self._lookup(ids, None, scores, train, counts)

    def route(self, ids: Mapping[str, Ids]) -> Routed:
        """Sends the ids of a batch ahead, as ``EmbeddingBagCollection.route`` does.

        Args:
          ids: as for the call.
        """
        return self._route(ids, None)
