# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Lookups in a store, without a table: ids to rows in NumPy."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from jax_dynemb._src.stores.store import Store

_PADDING = -1


class StoreLookup:
    """Looks ids up in a store that another process trains into.

    It needs no device and no state: each call reads rows from the store. A row of an id
    without one is ``default``.

    Args:
      store: such as ``jde.stores.Redis(url, name="cat")`` or
        ``jde.stores.Log(path, read_only=True)``.
      default: what the columns of an unknown id are.
      max_age: seconds after which a lookup first reads the newest commit of a ``Log``;
        None: only when ``refresh`` is called. Redis needs no refresh.

    Example:
      >>> lookup = jde.stores.StoreLookup(store)  # doctest: +SKIP
      >>> rows = lookup(ids)  # float32[..., dim]
      >>> bags = lookup.pooled(ids, lengths, pooling="mean")
    """

    def __init__(
        self, store: Store, *, default: float = 0.0, max_age: float | None = None
    ):
        self._store = store
        self._default = float(default)
        self._max_age = max_age
        self._refreshed = time.monotonic()

    def __call__(self, ids: Any) -> np.ndarray:
        """Looks ids up.

        Args:
          ids: int64[...] or uint64[...]; -1 is padding.

        Returns:
          float32[..., dim]: the rows, zeros for padding.

        Raises:
          TypeError: the ids are no integers.
          ValueError: an id is -2, -3 or -4, which are reserved.
        """
        return self.find(ids)[0]

    def find(self, ids: Any) -> tuple[np.ndarray, np.ndarray]:
        """Looks ids up, and says which have a row.

        Args:
          ids: as for a call.

        Returns:
          float32[..., dim] and bool[...].
        """
        age = time.monotonic() - self._refreshed
        if self._max_age is not None and age >= self._max_age:
            self.refresh()
        array = np.asarray(ids)
        if array.dtype.kind not in "iu" and array.size:
            raise TypeError(
                f"ids must be integers, not {array.dtype}. Hash other values with "
                "jde.hash_ids."
            )
        flat = array.astype(np.int64, copy=False).reshape(-1)
        real = flat != _PADDING
        distinct, place = np.unique(flat[real], return_inverse=True)
        found, packed = self._store.get(distinct)
        rows = self._store.layout.rows(packed).astype(np.float32)
        rows[~found] = self._default
        dim = rows.shape[1]
        all_rows = np.zeros((len(flat), dim), np.float32)
        all_found = np.zeros(len(flat), bool)
        all_rows[real], all_found[real] = rows[place], found[place]
        return all_rows.reshape(*array.shape, dim), all_found.reshape(array.shape)

    def pooled(
        self,
        ids: Any,
        lengths: Any,
        *,
        pooling: str = "sum",
        weights: Any = None,
    ) -> np.ndarray:
        """Sums or averages the rows of bags.

        Args:
          ids: int64[n] of all bags, one after the other; -1 is padding, which counts in
            no mean.
          lengths: whole numbers[bags]; their sum is n.
          pooling: "sum" or "mean".
          weights: float[n], factors of the rows; a mean still counts ids.

        Returns:
          float32[bags, dim]; zeros for an empty bag.

        Raises:
          ValueError: the lengths do not fit the ids, or another pooling.
        """
        if pooling not in ("sum", "mean"):
            raise ValueError(f"pooling must be 'sum' or 'mean', not {pooling!r}")
        flat = np.asarray(ids).reshape(-1)
        sizes = np.asarray(lengths, np.int64).reshape(-1)
        if (sizes < 0).any() or sizes.sum() != len(flat):
            raise ValueError(
                f"the lengths sum to {sizes.sum()}, and there are {len(flat)} ids"
            )
        rows = self(flat)
        if weights is not None:
            factors = np.asarray(weights, np.float32)
            if factors.shape != flat.shape:
                raise ValueError(f"{len(flat)} ids need as many weights")
            rows = rows * factors[:, None]
        bags = np.repeat(np.arange(len(sizes)), sizes)
        sums = np.zeros((len(sizes), rows.shape[1]), np.float32)
        np.add.at(sums, bags, rows)
        if pooling == "mean":
            real = flat.astype(np.int64, copy=False) != _PADDING
            counts = np.bincount(bags, real, len(sizes))
            sums /= np.maximum(counts, 1)[:, None].astype(np.float32)
        return sums

    def refresh(self) -> bool:
        """Reads what was committed since, where the store needs that.

        Returns:
          Whether there was a newer commit; False for stores that always read the newest
          rows.
        """
        self._refreshed = time.monotonic()
        refresh = getattr(self._store, "refresh", None)
        return bool(refresh()) if refresh is not None else False
