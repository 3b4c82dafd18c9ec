# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Runs what others do with the cores of a tensor-train table, for comparison.

Each peer is a function of (cores, ids, rate). It returns two calls without arguments: a
forward pass with sum pooling, and a whole SGD step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Calls = tuple[Callable[[], Any], Callable[[], Any]]
_CHUNK = 1000  # FBTT-Embedding's batch_count


def digits_of(cores: Sequence[Any], ids: np.ndarray) -> list[np.ndarray]:
    """int32[n] for each core: which of its slices each id has."""
    rest, digits = ids.reshape(-1), []
    for core in reversed(cores):
        digits.append((rest % core.shape[0]).astype(np.int32))
        rest = rest // core.shape[0]
    return digits[::-1]


def plain_jax(cores: Sequence[jax.Array], ids: np.ndarray, rate: float) -> Calls:
    """Takes one slice of each core an id, and multiplies; gradients by ``jax.grad``."""
    digits = [jnp.asarray(digit) for digit in digits_of(cores, ids)]
    batch, bag = ids.shape

    def pooled(cores: Any) -> jax.Array:
        rows = jnp.ones((ids.size, 1, 1), jnp.float32)
        for core, digit in zip(cores, digits, strict=True):
            rows = jnp.einsum("nmr,nrqs->nmqs", rows, core[digit])
            rows = rows.reshape(ids.size, -1, core.shape[3])
        return rows.reshape(batch, bag, -1).sum(axis=1)

    def update(cores: Any) -> Any:
        gradients = jax.grad(lambda cores: pooled(cores).sum())(cores)
        return tuple(c - rate * g for c, g in zip(cores, gradients, strict=True))

    forward, step = jax.jit(pooled), jax.jit(update)
    cores = tuple(cores)
    return lambda: forward(cores), lambda: step(cores)


def fbtt_in_torch(cores: Sequence[jax.Array], ids: np.ndarray, rate: float) -> Calls:
    """FBTT-Embedding's arithmetic: batched products of 1000 ids, dense gradients.

    Forward multiplies from the left. Backward repeats it, then walks back over the
    cores, and adds up gradients of slices per core.
    """
    import torch  # pyright: ignore[reportMissingImports]

    arrays = [torch.tensor(np.asarray(core)) for core in cores]
    digits = [torch.tensor(digit).long() for digit in digits_of(cores, ids)]
    bag_of = torch.arange(ids.shape[0]).repeat_interleave(ids.shape[1])
    dim = math.prod(core.shape[2] for core in arrays)
    upstream = torch.ones(ids.shape[0], dim)

    def chain(part: slice) -> list[Any]:
        """The products after each core; the last are the rows."""
        products = [arrays[0][digits[0][part]].flatten(1, 2)]
        for core, digit in zip(arrays[1:], digits[1:], strict=True):
            left = products[-1].reshape(len(products[-1]), -1, core.shape[1])
            products.append(torch.bmm(left, core[digit[part]].flatten(2)))
        return products

    parts = [slice(begin, begin + _CHUNK) for begin in range(0, ids.size, _CHUNK)]

    def forward() -> Any:
        pooled = torch.zeros(ids.shape[0], dim)
        for part in parts:
            rows = chain(part)[-1].reshape(-1, dim)
            pooled.index_add_(0, bag_of[part], rows)
        return pooled.numpy()

    def backward(part: slice, sums: list[Any]) -> None:
        products = chain(part)
        d_product = upstream[bag_of[part]].reshape(products[-1].shape)
        for t in range(len(arrays) - 1, 0, -1):
            slices = arrays[t][digits[t][part]].flatten(2)
            left = products[t - 1].reshape(len(slices), -1, arrays[t].shape[1])
            d_slices = torch.bmm(left.transpose(1, 2), d_product)
            sums[t].index_add_(
                0, digits[t][part], d_slices.reshape(-1, *sums[t].shape[1:])
            )
            d_product = torch.bmm(d_product, slices.transpose(1, 2))
            d_product = d_product.reshape(products[t - 1].shape)
        sums[0].index_add_(
            0, digits[0][part], d_product.reshape(-1, *sums[0].shape[1:])
        )

    def step() -> Any:
        forward()
        sums = [torch.zeros_like(core) for core in arrays]
        for part in parts:
            backward(part, sums)
        return [(c - rate * g).numpy() for c, g in zip(arrays, sums, strict=True)]

    return forward, step


PEERS = {"plain_jax": plain_jax, "fbtt_in_torch": fbtt_in_torch}
