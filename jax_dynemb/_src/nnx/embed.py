# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One dynamic table with the face of nnx.Embed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Array, Float

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import Routed
from jax_dynemb._src.nnx.table_module import Ids, TableModule
from jax_dynemb._src.scores import is_pair


class DynamicEmbed(TableModule):
    """Embeds ids of any value, as ``nnx.Embed``; an unseen id gets a row.

    All arguments are keywords, since ``nnx.Embed`` has its sizes in another order.

    Args:
      features: columns of a row, as in ``nnx.Embed``.
      capacity: rows to make room for; the counterpart of ``num_embeddings``.
      name: the table's name, in ``stats()`` and checkpoints.
      mesh: devices to shard the rows over, or None.
      axis: the mesh axis for it, or several; all axes if None.
      exchange_factor: as for ``jde.Tables``.
      exchange_dtype: as for ``jde.Tables``.
      exchange_pooled: as for ``jde.Tables``.
      exchange_transport: as for ``jde.Tables``.
      devices_per_host: as for ``jde.Tables``.
      rngs: the seed of the initial rows is drawn from ``rngs.params()``.
      options: everything else ``jde.TableConfig`` takes: initializer, optimizer,
        param_dtype, dtype, score_strategy, ...

    Example:
      >>> embed = jde.nnx.DynamicEmbed(features=8, capacity=1000, rngs=nnx.Rngs(0))
      >>> embed(jde.ids([2**40, -7, 2**40])).shape
      (3, 8)
      >>> embed.stats()["embedding/rows"]
      2
    """

    def __init__(
        self,
        *misplaced: Any,
        features: int | None = None,
        capacity: int | None = None,
        name: str = "embedding",
        mesh: Mesh | None = None,
        axis: str | tuple[str, ...] | None = None,
        exchange_factor: float | None = None,
        exchange_dtype: Any = None,
        exchange_pooled: str = "auto",
        exchange_transport: str = "auto",
        devices_per_host: int | None = None,
        rngs: nnx.Rngs | None = None,
        **options: Any,
    ):
        wrong = sorted(set(options) & set(_ELSEWHERE))
        if misplaced or wrong or features is None or capacity is None or rngs is None:
            raise TypeError(_keywords(misplaced, wrong))
        table = TableConfig(name=name, dim=features, capacity=capacity, **options)
        super().__init__(
            [table],
            rngs=rngs,
            mesh=mesh,
            axis=axis,
            exchange_factor=exchange_factor,
            exchange_dtype=exchange_dtype,
            exchange_pooled=exchange_pooled,
            exchange_transport=exchange_transport,
            devices_per_host=devices_per_host,
        )
        self.name = name
        self.features = features

    @property
    def capacity(self) -> int:
        """Rows that there is room for; see ``grow``."""
        return self.coll.tables[self.name].capacity

    def __call__(
        self,
        inputs: Ids | Routed,
        *,
        scores: Any = None,
        counts: jax.Array | None = None,
        train: bool | None = None,
    ) -> Float[Array, "*shape features"]:
        """Looks up one row an id.

        Args:
          inputs: 64-bit ids of shape [...], or ``jde.Jagged``. Or what ``route``
            returned.
          scores: the score of these rows under the customized strategy: one number or
            the words of one, or one for each id; see ``Tables.lookup``.
          counts: in the shape of the ids, how many uses each one stands for.
          train: True inserts unseen ids; False reads only. Default: True until
            ``model.eval()``.

        Returns:
          [..., features]; [capacity, features] for Jagged ids. -1 gives zeros.
        """
        feature = next(iter(self.coll.features))
        if isinstance(inputs, Mapping):
            raise TypeError(
                f"DynamicEmbed has one table and takes its ids alone, not a dict of "
                f"{sorted(map(str, inputs))}: write embed(ids). For several features "
                "use jde.nnx.EmbeddingCollection."
            )
        table = np.shape(scores) == () or is_pair(scores)
        named = None if scores is None else {self.name if table else feature: scores}
        uses = None if counts is None else {feature: counts}
        batch = inputs if isinstance(inputs, Routed) else {feature: inputs}
        return self._lookup(batch, None, named, train, uses)[feature]

    def attend(
        self, query: jax.Array, inputs: Ids | None = None, *, train: bool | None = None
    ) -> Float[Array, "*shape ids"]:
        """Scores ids for queries: the dot product with the row of each id.

        ``nnx.Embed.attend`` scores its whole vocabulary. A dynamic table has no last
        id, so the candidates are said: the items of the batch, a sample, a catalogue.

        Args:
          query: [..., features].
          inputs: candidates, 64-bit ids of shape [n], or [..., n] with candidates of
            its own for each query.
          train: as for the call.

        Returns:
          [..., n].

        Raises:
          TypeError: no candidates are given.

        Example:
          >>> item = jde.nnx.DynamicEmbed(features=8, capacity=1000, rngs=nnx.Rngs(0))
          >>> item.attend(jnp.ones((4, 8)), jde.ids(range(100))).shape
          (4, 100)
        """
        if inputs is None:
            raise TypeError(
                "DynamicEmbed.attend(query, ids) needs the ids to score, since a table "
                "of any ids has no list of all: the items of the batch, or jde.ids of "
                "a catalogue. Tables.export reads the ids that have a row."
            )
        rows = self(inputs, train=train)
        return jnp.einsum("...d,...nd->...n", query, rows)

    def route(self, inputs: Ids) -> Routed:
        """Sends ids ahead of their lookup, as ``EmbeddingBagCollection.route`` does.

        Args:
          inputs: as for the call.
        """
        return self._route({next(iter(self.coll.features)): inputs}, None)


# What nnx.Embed and other libraries call the arguments.
_ELSEWHERE = {
    "num_embeddings": "capacity=...",
    "embedding_dim": "features=...",
    "dim": "features=...",
    "embedding_init": "initializer=jde.initializers.normal(0.01)",
}


def _keywords(misplaced: Sequence[Any], wrong: Sequence[str]) -> str:
    """Says what to write instead of a call with missing or wrong keywords."""
    instead = [f"{name} is {_ELSEWHERE[name]}" for name in wrong]
    given = [f"the positions of {list(misplaced)} do not say which is which"]
    reasons = "; ".join((given if misplaced else []) + instead)
    return (
        "DynamicEmbed takes keywords only: write jde.nnx.DynamicEmbed(features=8, "
        "capacity=1000, rngs=rngs) for 1000 rows of 8 columns, which is "
        "nnx.Embed(1000, 8)" + (f" ({reasons})." if reasons else ".")
    )
