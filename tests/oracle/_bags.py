# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which ids of an input belong to which output row, and their pooling."""

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Bags:
    """One feature's input, flat.

    Attributes:
        keys: uint64[n], padding included.
        valid: bool[n], false for padding.
        bag: int[n], the output row of each id.
        shape: shape of the output without its last axis.
    """

    keys: np.ndarray
    valid: np.ndarray
    bag: np.ndarray
    shape: tuple[int, ...]
    input_shape: tuple[int, ...]

    @property
    def num_bags(self) -> int:
        """How many output rows there are."""
        return int(np.prod(self.shape))

    def counts(self) -> np.ndarray:
        """int[num_bags], valid ids of each bag."""
        return np.bincount(self.bag[self.valid], minlength=self.num_bags)


def as_int64(ids: Any) -> np.ndarray:
    """Ids of any form to int64: uint32 pairs on a last axis are joined.

    Other integers keep their value: 32-bit ids are extended with their sign.
    """
    ids = np.asarray(ids)
    if ids.dtype == np.uint32:
        pairs = ids.astype(np.uint64)
        return (pairs[..., 0] | pairs[..., 1] << np.uint64(32)).view(np.int64)
    return ids.astype(np.int64)


def bags_of(ids: Any, pooled: bool) -> Bags:
    """Reads an input: an array of ids, or jagged `values` and `lengths`."""
    lengths = getattr(ids, "lengths", None)
    keys = as_int64(ids if lengths is None else ids.values)
    shape: tuple[int, ...] = keys.shape
    bag = np.arange(keys.size)
    if lengths is not None:
        lengths = np.asarray(lengths)
        keys = np.where(np.arange(len(keys)) < lengths.sum(), keys, -1)
        if pooled:
            used = np.repeat(np.arange(len(lengths)), lengths)
            bag = np.concatenate([used, np.zeros(len(keys) - len(used), int)])
            shape = lengths.shape
    elif pooled and keys.ndim > 1:
        bag, shape = bag // max(1, keys.shape[-1]), keys.shape[:-1]
    flat = keys.reshape(-1)
    return Bags(flat.view(np.uint64), flat != -1, bag, shape, keys.shape)


def pool(bags: Bags, rows: np.ndarray, weights: Any, pooling: str | None) -> np.ndarray:
    """Sums or averages rows float[n, dim] of each bag: float64[*shape, dim].

    ``pooling`` is None, "sum" or "mean". The mean divides by the number of valid ids,
    never by the sum of their weights.
    """
    factors = position_factors(bags, weights, pooling)
    out = np.zeros((bags.num_bags, rows.shape[-1]))
    weighted = factors[:, None] * rows.astype(np.float64)
    np.add.at(out, bags.bag[bags.valid], weighted[bags.valid])
    return out.reshape(*bags.shape, rows.shape[-1])


def position_factors(bags: Bags, weights: Any, pooling: str | None) -> np.ndarray:
    """float64[n]: with which factor each id's row enters the output."""
    factors = bags.valid.astype(np.float64)
    if weights is not None:
        factors *= np.asarray(weights, np.float64).reshape(-1)
    return factors * of_each_id(bags, bag_scales(bags, pooling))


def of_each_id(bags: Bags, of_bags: np.ndarray) -> np.ndarray:
    """Repeats values of bags for each id: [num_bags, ...] to [n, ...]; padding: 0."""
    out = np.zeros((len(bags.keys), *of_bags.shape[1:]))
    out[bags.valid] = of_bags[bags.bag[bags.valid]]
    return out


def bag_scales(bags: Bags, pooling: str | None) -> np.ndarray:
    """float64[num_bags]: one over the number of ids for a mean, else one."""
    if pooling == "mean":
        return 1.0 / np.maximum(bags.counts(), 1)
    return np.ones(bags.num_bags)
