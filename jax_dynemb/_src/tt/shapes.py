# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Shapes of cores: how the rows and the columns of a table are factorised."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Literal

MOST_CORES = 5


def suggested_shapes(
    num_embeddings: int,
    dim: int,
    num_cores: int = 3,
    compat: Literal["fbtt"] | None = None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Suggests shapes of the cores of a table.

    Args:
      num_embeddings: rows of the table.
      dim: columns of a row.
      num_cores: 2 to 5.
      compat: "fbtt" follows the rule of FBTT-Embedding for the rows, for tables that
        have to fit its cores. Columns are always exact, which FBTT's are not.

    Returns:
      The factors of the rows, whose product is ``num_embeddings`` or a little more,
      and those of the columns, whose product is ``dim``.

    Raises:
      ValueError: a number is out of range.

    Example:
      >>> suggested_shapes(10_000_000, 64)
      ((216, 216, 215), (4, 4, 4))
      >>> suggested_shapes(10_000_000, 128, compat="fbtt")
      ((200, 200, 250), (4, 4, 8))
    """
    if not 2 <= num_cores <= MOST_CORES:
        raise ValueError(f"num_cores must be 2 to {MOST_CORES}, not {num_cores}")
    if num_embeddings < 1 or dim < 1:
        raise ValueError(
            f"num_embeddings and dim must be 1 or more, not {num_embeddings} and {dim}"
        )
    if compat not in (None, "fbtt"):
        raise ValueError(f"compat must be None or 'fbtt', not {compat!r}")
    rows = _near_root(num_embeddings, num_cores)
    if compat == "fbtt":
        return _fbtt_rows(num_embeddings, num_cores), _fbtt_order(
            _balanced(dim, num_cores)
        )
    return rows, _short_middle(_balanced(dim, num_cores))


def _near_root(count: int, parts: int) -> tuple[int, ...]:
    """Factors near the root, each the least that the others leave room for."""
    factors, rest = [], count
    for left in range(parts, 0, -1):
        factor = max(1, round(rest ** (1 / left)))
        while factor**left < rest:
            factor += 1
        while factor > 1 and (factor - 1) ** left >= rest:
            factor -= 1
        factors.append(factor)
        rest = -(-rest // factor)
    return tuple(factors)


def _short_middle(factors: Sequence[int]) -> tuple[int, ...]:
    """Puts the small factors into the middle, where cores have two ranks."""
    small_first = sorted(factors)
    count = len(small_first)
    order = sorted(range(count), key=lambda t: (min(t, count - 1 - t) == 0, t))
    result = [0] * count
    for place, factor in zip(order, small_first, strict=True):
        result[place] = factor
    return tuple(result)


@functools.cache
def _balanced(number: int, parts: int) -> tuple[int, ...]:
    """The factorisation with the most even parts, by the entropy of their shares."""
    return max(_factorisations(number, parts, 1), key=_evenness)


def _factorisations(number: int, parts: int, least: int) -> Iterator[tuple[int, ...]]:
    """All products of so many factors in ascending order, none below ``least``."""
    if parts == 1:
        if number >= least:
            yield (number,)
        return
    for first in _divisors(number):
        if least <= first and first**parts <= number:
            for rest in _factorisations(number // first, parts - 1, first):
                yield (first, *rest)


@functools.cache
def _divisors(number: int) -> tuple[int, ...]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def _evenness(factors: Sequence[int]) -> float:
    total = sum(factors)
    return -sum(f / total * math.log(f / total) for f in factors)


def _fbtt_rows(count: int, parts: int) -> tuple[int, ...]:
    """FBTT's rule: of the numbers rounded up to tens the one with the evenest parts."""
    rounded = [-(-count // 10**k) * 10**k for k in range(len(str(count)))]
    best = max((_balanced(number, parts) for number in rounded), key=_evenness)
    return _fbtt_order(best)


def _fbtt_order(factors: Sequence[int]) -> tuple[int, ...]:
    """Ascending, the two halves interleaved."""
    ascending = sorted(factors)
    half = len(ascending) // 2
    pairs = itertools.zip_longest(ascending[:half], ascending[half:])
    return tuple(f for pair in pairs for f in pair if f is not None)
