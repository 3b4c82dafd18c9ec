# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Several tensor trains of one size, with FBTT-Embedding's arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.nnx.tt_embedding_bag import TTEmbeddingBag


class TableBatchedTTEmbeddingBag(nnx.Module):
    """Looks up several tensor-train tables of one size in one call.

    Args:
      num_tables: how many there are.
      num_embeddings: rows of each.
      embedding_dim: columns of a row.
      positional: as for ``TTEmbeddingBag``.
      name: the tables are ``name_0``, ``name_1``, ...
      rngs: seeds are drawn from ``rngs.params()``.
      options: all others of ``TTEmbeddingBag``.

    Attributes:
      tables: a ``TTEmbeddingBag`` each.

    Example:
      >>> bags = jde.nnx.TableBatchedTTEmbeddingBag(2, 900, 8, [4], rngs=nnx.Rngs(0))
      >>> ids, offsets = jde.ids([7, 899, 3, 0]), [0, 1, 2, 4, 4]
      >>> bags(ids, offsets).shape  # two bags of each table
      (2, 2, 8)
    """

    def __init__(
        self,
        num_tables: int,
        num_embeddings: int,
        embedding_dim: int,
        *positional: Any,
        name: str = "tt",
        rngs: nnx.Rngs,
        **options: Any,
    ):
        if num_tables < 1:
            raise ValueError(f"num_tables must be 1 or more, not {num_tables}.")
        size = num_embeddings, embedding_dim
        self.tables = nnx.List(
            TTEmbeddingBag(*size, *positional, name=f"{name}_{t}", rngs=rngs, **options)
            for t in range(num_tables)
        )

    def __call__(self, indices: Any, offsets: Any) -> Float[Array, "tables bags dim"]:
        """Looks up and pools rows.

        Args:
          indices: ``jde.ids`` of all tables, one after the other.
          offsets: integers [num_tables * bags + 1]: where each bag begins, those of the
            first table first, and where the last one ends.

        Returns:
          float32[num_tables, bags, dim].

        Raises:
          ValueError: offsets are not as many for each table.
        """
        offsets = offsets if hasattr(offsets, "dtype") else np.asarray(offsets)
        count = len(self.tables)
        bags, rest = divmod(offsets.shape[0] - 1, count)
        if offsets.ndim != 1 or rest or bags < 0:
            raise ValueError(
                f"offsets must be integers [{count} * bags + 1], not of shape "
                f"{offsets.shape}: all tables have as many bags, and the last offset "
                "is the number of ids."
            )
        out = []
        for t, table in enumerate(self.tables):
            own = offsets[t * bags : (t + 1) * bags + 1]
            out.append(table(_between(indices, own)))
        return jnp.stack(out)

    def load_fbtt(self, state_dict: Mapping[str, Any]) -> None:
        """Takes over the cores of an FBTT-Embedding module with as many tables.

        Args:
          state_dict: of the PyTorch module.
        """
        for t, table in enumerate(self.tables):
            table.load_fbtt(state_dict, t)

    def to_fbtt(self) -> dict[str, np.ndarray]:
        """Makes the state dict of an FBTT-Embedding module without a cache."""
        parts = [table.to_fbtt() for table in self.tables]
        return {
            name: np.concatenate([part[name] for part in parts])
            if first.ndim == 3
            else first
            for name, first in parts[0].items()
        }


def _between(indices: Any, offsets: Any) -> Jagged:
    """Returns the bags between some offsets; on a device all ids, theirs first."""
    lengths = (offsets[1:] - offsets[:-1]).astype(np.int32)
    if isinstance(offsets, jax.Array):
        return Jagged(jnp.roll(indices, -offsets[0], axis=0), lengths)
    return Jagged(indices[int(offsets[0]) : int(offsets[-1])], lengths)
