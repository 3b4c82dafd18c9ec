# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers of the rows that ids have, rows of a table from its cores, and all rows."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ops
from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.ops import (
    Distinct,
    as_words,
    bucket_of,
    hash_words,
    id_array,
    is_padding,
)
from jax_dynemb._src.tt.config import TTConfig
from jax_dynemb._src.tt.contract import Product, contract, einsum, half_prefixes

# A prefix has at least the columns of one tile of a tensor core's product.
_TILE = 16


class _Split(NamedTuple):
    """Where the cores of a table are cut into prefixes and suffixes."""

    cut: int  # how many cores a prefix has
    prefixes: int
    suffixes: int

    @classmethod
    def of(cls, shapes: Sequence[tuple[int, ...]]) -> _Split:
        cut = _cut(shapes)
        rows = [shape[0] for shape in shapes]
        return cls(cut, math.prod(rows[:cut]), math.prod(rows[cut:]))

    def makes_all(self, n: int) -> bool:
        """Whether a call of ``n`` ids makes all prefixes, in one large product.

        Where they may be more than twice the ids, those that occur are made one by one.
        """
        return ops.is_at_most(self.prefixes - 2 * n, 0)


def distinct_of(shapes: Sequence[tuple[int, ...]], numbers: jax.Array) -> Distinct:
    """Finds the distinct rows of uint32[n], or NO_ROW, and where a prefix begins."""
    limit = math.prod(shape[0] for shape in shapes)
    if len(shapes) == 1:
        return ops.distinct(numbers, limit=limit, prefixes=0, suffixes=1)
    split = _Split.of(shapes)
    prefixes = split.prefixes if split.makes_all(numbers.shape[0]) else 0
    return ops.distinct(
        numbers, limit=limit, prefixes=prefixes, suffixes=split.suffixes
    )


def rows_of(
    cores: Sequence[jax.Array], some: Distinct, compute_dtype: str
) -> jax.Array:
    """Makes rows from cores float32[p_t, R_t, q_t, R_{t+1}], where R_0 = 1.

    Differentiable in the cores. Returns [n, prod(q) * R_T]: bfloat16 if the products
    are and a GPU has kernels for these sizes, else float32.
    """
    if len(cores) == 1:
        (core,) = cores
        return core.reshape(core.shape[0], -1)[some.values]
    split = _Split.of([core.shape for core in cores])
    suffix = dense(cores[split.cut :], compute_dtype)
    suffix = suffix.reshape(suffix.shape[0], -1)
    product = Product(cores[split.cut].shape[1], compute_dtype)
    half = compute_dtype == "bfloat16" and _may_be_half(cores, split)
    if split.makes_all(some.values.shape[0]):
        prefix = _every_prefix(cores[: split.cut], compute_dtype, half)
        return contract(product, prefix, suffix, some.starts, some.of_suffix)
    prefix, starts = _prefixes_that_occur(cores, split, some, compute_dtype)
    prefix = prefix.astype(jnp.bfloat16 if half else jnp.float32)
    live = jnp.arange(some.values.shape[0], dtype=jnp.int32) < some.count
    own = (some.values % jnp.uint32(split.suffixes)).astype(jnp.int32)
    return contract(product, prefix, suffix, starts, jnp.where(live, own, -1))


def _prefixes_that_occur(
    cores: Sequence[jax.Array], split: _Split, some: Distinct, compute_dtype: str
) -> tuple[jax.Array, jax.Array]:
    """The prefixes of some rows, as ``contract`` takes them, and their first rows."""
    n = some.values.shape[0]
    live = jnp.arange(n, dtype=jnp.int32) < some.count
    numbers = some.values // jnp.uint32(split.suffixes)
    before = cores[: split.cut]
    prefixes = distinct_of(
        [core.shape for core in before], jnp.where(live, numbers, jnp.uint32(NO_ROW))
    )
    prefix = rows_of(before, prefixes, compute_dtype)
    starts = _starts(jnp.where(live, prefixes.inverse, n), some.count)
    # Both shapes have the same bytes. A call's attributes tell how many prefixes are in
    # the third axis, so a number that is not known is in the first.
    shaped = prefix[:, None, None] if ops.is_symbolic(n) else prefix[None, None]
    return shaped, starts.astype(jnp.int32)


def _starts(ranks: jax.Array, count: jax.Array) -> jax.Array:
    """Finds each prefix's first row, [n + 1], of ascending ``ranks`` int32[n]."""
    n = ranks.shape[0]
    if ops.is_symbolic(n):  # a search has as many steps as n has bits
        ends = jnp.broadcast_to(count, (n + 1,))
        return ends.at[ranks].min(jnp.arange(n, dtype=jnp.int32))
    # Unrolled: a GPU takes one kernel, not one for each step of the search.
    return jnp.searchsorted(
        ranks, jnp.arange(n + 1, dtype=jnp.int32), method="scan_unrolled"
    )


def _may_be_half(cores: Sequence[jax.Array], split: _Split) -> bool:
    m = math.prod(core.shape[2] for core in cores[: split.cut])
    n = math.prod(core.shape[2] for core in cores[split.cut :]) * cores[-1].shape[3]
    return ops.may_be_half(m, cores[split.cut].shape[1], n, split.suffixes)


def _every_prefix(
    cores: Sequence[jax.Array], compute_dtype: str, half: bool
) -> jax.Array:
    """Multiplies all prefixes out: [A0, M0, A1, M1 * K], A1 and M1 of the last core."""
    *before, last = cores
    p, rank, *_ = last.shape
    if not before:
        prefix = last.reshape(1, 1, p, -1)
        return prefix.astype(jnp.bfloat16) if half else prefix
    left = dense(before, compute_dtype)
    left = left.reshape(left.shape[0], -1, rank)
    # The second factor with its rank in front: so XLA transposes it, not the product.
    right = last.reshape(p, rank, -1).swapaxes(0, 1)
    if half:
        return half_prefixes(left, right)
    return einsum("aqk,kbs->aqbs", compute_dtype, left, right)


def dense(cores: Sequence[jax.Array], compute_dtype: str) -> jax.Array:
    """Multiplies cores out: float32[prod(p), R_first, prod(q) * R_last]."""

    def joined(left: jax.Array, right: jax.Array) -> jax.Array:
        p1, r1, q1, _ = left.shape
        p2, _, q2, r2 = right.shape
        both = einsum("arqk,bkst->abrqst", compute_dtype, left, right)
        return both.reshape(p1 * p2, r1, q1 * q2, r2)

    whole = functools.reduce(joined, cores)
    return whole.reshape(*whole.shape[:2], -1)


def _cut(shapes: Sequence[tuple[int, ...]]) -> int:
    """Chooses how many cores the prefix has.

    A row reads ``R * (M + N)`` numbers. 16 columns of the prefix fill a tile of a
    tensor core. All suffixes are made in each call, so they must be few; of prefixes
    those that occur would do.
    """
    best, choice = math.inf, 1
    for cut in range(1, len(shapes)):
        m = math.prod(shape[2] for shape in shapes[:cut])
        n = math.prod(shape[2] for shape in shapes[cut:]) * shapes[-1][3]
        read = shapes[cut][1] * (m + n) / (2 if m == _TILE else 1)
        suffixes = math.prod(shape[0] for shape in shapes[cut:])
        work = read + suffixes / 100
        if work < best:
            best, choice = work, cut
    return choice


# The number of an id that has no row; it is above all others.
NO_ROW = 0xFFFF_FFFF


class Numbers(NamedTuple):
    """Holds what is known of each id of a call."""

    rows: jax.Array  # uint32[n], the number of its row, or NO_ROW
    padding: jax.Array  # bool[n], whether it is -1
    outside: jax.Array  # bool[n], whether it is neither padding nor a row

    @property
    def found(self) -> jax.Array:
        """bool[n], whether each id has a row."""
        return self.rows != jnp.uint32(NO_ROW)


def without_strangers(config: TTConfig, feature: str, ids: Any) -> Any:
    """Replaces ids, in any form that a lookup takes, by padding if they have no row."""
    if isinstance(ids, Jagged):
        values = without_strangers(config, feature, ids.values)
        return dataclasses.replace(ids, values=values)
    array, shape = id_array(config, feature, ids)
    if config.ids == "hash":
        return array
    found = numbers_of(config, array.reshape(-1, *array.shape[len(shape) :])).found
    found = found.reshape(*shape, *[1] * (array.ndim - len(shape)))
    return jnp.where(found, array, ~jnp.zeros((), array.dtype))


def numbers_of(config: TTConfig, ids: jax.Array) -> Numbers:
    """Finds the row of each id."""
    words = as_words(ids)
    padding = is_padding(words)
    low, high = words[:, 0], words[:, 1]
    if config.ids == "hash":
        rows = bucket_of(*hash_words(words, config.hash_seed), config.num_rows)
        inside = ~padding
    else:
        rows = low
        inside = (high == 0) & (low < jnp.uint32(config.num_embeddings))
    rows = jnp.where(inside, rows, jnp.uint32(NO_ROW))
    return Numbers(rows, padding, ~inside & ~padding)


def full_weight(
    config: TTConfig, cores: Sequence[jax.Array], chunk_rows: int = 1 << 20
) -> Iterator[np.ndarray]:
    """Streams the rows 0 to num_embeddings - 1 to the host.

    Rows that the cores have beyond these, since their factors round up, are left out.

    Args:
      config: of the table.
      cores: its arrays.
      chunk_rows: the most rows of a chunk.

    Returns:
      An iterator over float32[rows, dim].

    Raises:
      ValueError: a chunk of no rows.
    """
    if chunk_rows < 1:
        raise ValueError(
            f"Table '{config.name}': chunk_rows must be 1 or more, not {chunk_rows}; "
            "the default is 2**20"
        )
    return _chunks(config, cores, chunk_rows)


def _chunks(
    config: TTConfig, cores: Sequence[jax.Array], chunk_rows: int
) -> Iterator[np.ndarray]:
    size = min(chunk_rows, config.num_embeddings)
    make = jax.jit(functools.partial(_some, config.compute_dtype, size))
    for begin in range(0, config.num_embeddings, size):
        # The last chunk ends with the table, so that all have one shape.
        first = min(begin, config.num_embeddings - size)
        rows = np.asarray(make(tuple(cores), jnp.uint32(first)))
        yield rows[begin - first :]


def _some(
    compute_dtype: str, size: int, cores: Sequence[jax.Array], first: jax.Array
) -> jax.Array:
    numbers = first + jnp.arange(size, dtype=jnp.uint32)
    some = distinct_of([core.shape for core in cores], numbers)
    return rows_of(cores, some, compute_dtype).astype(jnp.float32)
