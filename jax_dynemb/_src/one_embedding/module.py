# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""OneEmbedding's module: ids of several tables in one array, a row for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Array, Float

from jax_dynemb._src import initializers
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.ids import words_of
from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.nnx.interface import TableModule
from jax_dynemb._src.one_embedding.options import StoreOptions

_SNAPSHOTS = (
    "write jde.checkpoint.save(directory, step, nnx.state(model), "
    "tables=embedding.coll), and restore"
)
_REFUSED = {"save_snapshot": _SNAPSHOTS, "load_snapshot": _SNAPSHOTS}


class MultiTableEmbedding(TableModule):
    """Looks up a row an id, as ``nn.Embedding`` does; ids are of one or several tables.

    Equal initialisers share one hash table, in which an id is the same row for every
    table, as in OneEmbedding: offset the ids of different tables there. Tables with
    different initialisers are hash tables of their own, named ``name_0``, ``name_1``.

    Args:
      name: of the hash table.
      embedding_dim: columns of a row.
      dtype: of the rows that come back.
      key_type: "int64" or "int32", or a type of that name.
      tables: an initializer for each, as ``make_table_options`` returns it; None: one.
      store_options: what a ``make_..._store_options`` returned.
      default_initializer: of tables without one; normal with deviation 0.05 if None.
      padding_idx: an id whose row is zeros and is not trained; -1 always is one.
      seed: of the initial rows, unless there are ``rngs``.
      optimizer: one of ``jde.optim``, or a row-local optax transformation; OneEmbedding
        takes it elsewhere. SGD of 0.01 if None.
      capacities: rows of each table, where initialisers differ.
      rngs: the seed of the initial rows is drawn from ``rngs.params()``.
      mesh: devices to shard the rows over, or None.
      axis: the mesh axis for it, or several; all axes if None.
      options: other fields of ``jde.TableConfig``.

    Raises:
      TypeError: several widths, or no store options.
      ValueError: ``capacities`` are missing or do not fit.

    Example:
      >>> one = jde.one_embedding
      >>> store = one.make_device_mem_store_options("snapshots", capacity=1000)
      >>> embedding = one.MultiTableEmbedding(
      ...     "emb", 8, "float32", "int64", [jde.initializers.normal(0.05)] * 2, store
      ... )
      >>> embedding(jde.ids([[7, 2**40], [9, 8]])).shape
      (2, 2, 8)
    """

    def __init__(
        self,
        name: str,
        embedding_dim: int,
        dtype: Any = "float32",
        key_type: Any = "int64",
        tables: Sequence[Any] | None = None,
        store_options: StoreOptions | None = None,
        default_initializer: Any = None,
        padding_idx: int | None = None,
        seed: int = 0,
        *,
        optimizer: Any = None,
        capacities: Sequence[int] | None = None,
        rngs: nnx.Rngs | None = None,
        mesh: Mesh | None = None,
        axis: str | tuple[str, ...] | None = None,
        **options: Any,
    ):
        if not is_whole(embedding_dim) or not isinstance(store_options, StoreOptions):
            raise TypeError(
                "MultiTableEmbedding takes one embedding_dim and store_options=jde."
                "one_embedding.make_device_mem_store_options(...) or its like, not "
                f"{embedding_dim!r} and {store_options!r}. For columns of several "
                "widths write jde.nnx.EmbeddingCollection with a table for each."
            )
        laws = _laws(tables, default_initializer)
        rows = _rows(laws, store_options, capacities)
        names = [name] if len(rows) == 1 else [f"{name}_{t}" for t in range(len(rows))]
        fields = options | {
            "dim": embedding_dim,
            "dtype": dtype,
            "key_dtype": str(getattr(key_type, "__name__", key_type)).split(".")[-1],
            "tier": store_options.tier,
        }
        if optimizer is not None:
            fields["optimizer"] = optimizer
        configs = [
            TableConfig(name=each, capacity=count, initializer=law, **fields)
            for each, count, law in zip(names, rows, laws, strict=False)
        ]
        rngs = nnx.Rngs(seed) if rngs is None else rngs
        super().__init__(configs, rngs=rngs, mesh=mesh, axis=axis)
        self.embedding_dim, self.num_tables = embedding_dim, len(laws)
        self.padding_idx = padding_idx

    def __getattr__(self, name: str) -> Any:
        """Says what takes the place of OneEmbedding's snapshots."""
        kind = type(self).__name__
        if name in _REFUSED:
            raise AttributeError(f"{kind}.{name} is refused: {_REFUSED[name]}.")
        raise AttributeError(f"{kind!r} object has no attribute {name!r}")

    def __call__(
        self, ids: Any, table_ids: Any = None, *, train: bool | None = None
    ) -> Float[Array, "*shape dim"]:
        """Looks up one row an id.

        Args:
          ids: ``jde.ids`` or NumPy integers, [batch, tables]: column t is of table t.
            With ``table_ids``, or one table, of any shape.
          table_ids: integers in the shape of the ids, the table of each.
          train: True inserts unseen ids; False reads only. Default: True until
            ``model.eval()``.

        Returns:
          [..., embedding_dim]; zeros for -1 and ``padding_idx``.

        Raises:
          ValueError: ids of several tables in another shape, without ``table_ids``.
        """
        keys, is_pair = self._keys(ids)
        shape = keys.shape[:-1] if is_pair else keys.shape
        features = list(self.coll.features)
        if table_ids is None and self.num_tables > 1:
            if len(shape) != 2 or shape[1] != self.num_tables:
                raise ValueError(
                    f"ids of {self.num_tables} tables have the shape {shape}: give "
                    f"[batch, {self.num_tables}], or table_ids=... of that shape."
                )
        elif table_ids is not None and np.shape(table_ids) != shape:
            raise ValueError(
                f"table_ids have the shape {np.shape(table_ids)}, and ids {shape}: "
                "give a table for each id."
            )
        if len(features) == 1:
            return self._lookup({features[0]: keys}, None, None, train)[features[0]]
        if table_ids is None:
            batch = {f: keys[:, t] for t, f in enumerate(features)}
            rows = self._lookup(batch, None, None, train)
            return jnp.stack([rows[f] for f in features], axis=1)
        batch = {
            f: _only(keys, jnp.asarray(table_ids) == t, is_pair)
            for t, f in enumerate(features)
        }
        rows = self._lookup(batch, None, None, train)
        return sum((rows[f] for f in features[1:]), rows[features[0]])

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Returns itself: the mesh, or JAX's default device, has placed the tables.

        Args:
          args: ignored.
          kwargs: ignored.
        """
        return self

    def fed(self, batch: Any) -> tuple[dict[str, Any], Any]:
        """Finds ids [batch, tables], with which a batch begins, see ``TableModule``.

        Args:
          batch: NumPy integers, or a tuple that begins with them.
        """
        ids = batch[0] if isinstance(batch, tuple) else batch
        if isinstance(ids, Mapping):
            return super().fed(batch)
        keys, is_pair = self._keys(ids)
        keys, features = np.asarray(keys), list(self.coll.features)
        if len(features) == 1:
            by_feature = {features[0]: keys}
        elif keys.ndim == 2 + is_pair and keys.shape[1] == len(features):
            by_feature = {f: keys[:, t] for t, f in enumerate(features)}
        else:
            raise ValueError(
                f"ids of {len(features)} tables have the shape {np.shape(ids)}: a "
                f"row prefetcher takes [batch, {len(features)}]."
            )
        return by_feature, (keys, *batch[1:]) if isinstance(batch, tuple) else keys

    def _keys(self, ids: Any) -> tuple[Any, bool]:
        """Returns ids with padding for ``padding_idx``; and whether they are pairs."""
        if not isinstance(ids, jax.Array):
            wide = next(iter(self.coll.tables.values())).key_dtype == "int64"
            ids = words_of(ids) if wide else np.asarray(ids, np.int32)
        is_pair = ids.dtype == np.uint32
        if self.padding_idx is None:
            return ids, is_pair
        own = jnp.asarray(ids) != self.padding_idx
        if is_pair:
            words = words_of(np.array(self.padding_idx, np.int64))
            own = (jnp.asarray(ids) != words).any(axis=-1)
        return _only(ids, own, is_pair), is_pair


def _only(keys: Any, own: jax.Array, is_pair: bool) -> jax.Array:
    """Returns the keys with padding where they are not ``own``."""
    if is_pair:
        return jnp.where(own[..., None], keys, jnp.uint32(0xFFFF_FFFF))
    return jnp.where(own, keys, -1)


def _laws(tables: Sequence[Any] | None, default: Any) -> list[Any]:
    default = initializers.normal(0.05) if default is None else default
    laws = [default] if tables is None else list(tables)
    return [default if law is None else law for law in laws]


def _rows(
    laws: Sequence[Any], store: StoreOptions, capacities: Sequence[int] | None
) -> list[int]:
    """Returns the rows of each hash table: one, or one for each initialiser."""
    if capacities is not None:
        if len(capacities) != len(laws):
            raise ValueError(
                f"capacities has {len(capacities)} numbers for {len(laws)} tables: "
                "give the rows of each."
            )
        return list(capacities)
    if len(set(laws)) > 1:
        raise ValueError(
            f"{len(laws)} tables with different initialisers are hash tables of their "
            "own: add capacities=[rows of each]."
        )
    # The store's budget bounds the rows where no capacity does.
    return [1 if store.capacity is None else store.capacity]
