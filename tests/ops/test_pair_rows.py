# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows that are products of two factors, and their gradients, against NumPy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_dynemb._src import ops

SIZES = {
    "as in a table of 64 columns": (50, 40, 16, 32, 4, 700),
    "one rank": (7, 5, 3, 1, 1, 20),
    "wide suffixes": (30, 25, 16, 64, 8, 400),
    "suffixes of several blocks": (12, 200, 16, 64, 8, 900),
    "no whole tiles": (5, 6, 17, 33, 3, 22),
    "more than a kernel holds": (4, 4, 40, 70, 5, 9),
    "few ranks": (9, 11, 16, 8, 8, 60),
    "many rows of a prefix": (2, 300, 8, 16, 2, 500),
    "sums larger than shared memory": (3, 4000, 4, 16, 4, 9000),
    "suffixes larger than prefixes": (60, 40, 4, 32, 128, 900),
    "the same, no whole tiles": (25, 9, 5, 13, 48, 90),
    "the same, one row each": (40, 400, 1, 16, 16, 60),
    "no rows": (3, 2, 1, 1, 1, 0),
}


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Random factors, and rows in order of (prefix, suffix)."""

    m: int
    k: int
    n: int
    prefix: np.ndarray
    suffix: np.ndarray
    of_prefix: np.ndarray
    of_suffix: np.ndarray

    @classmethod
    def random(cls, a, b, m, k, n, rows, seed=0):
        rng = np.random.default_rng(seed)
        pairs = np.sort(rng.choice(a * b, rows, replace=False))
        return cls(
            m,
            k,
            n,
            rng.normal(size=(a, m * k)).astype(np.float32),
            rng.normal(size=(b, k * n)).astype(np.float32),
            pairs // b,
            (pairs % b).astype(np.int32),
        )

    @property
    def starts(self):
        every = np.arange(len(self.prefix) + 1)
        return np.searchsorted(self.of_prefix, every).astype(np.int32)

    def matrices(self):
        p = self.prefix.reshape(-1, self.m, self.k).astype(np.float64)
        s = self.suffix.reshape(-1, self.k, self.n).astype(np.float64)
        return p, s

    def operands(self, outer=1, segments=1):
        """The prefixes as [outer, segments, ...]."""
        a = len(self.prefix)
        prefix = self.prefix.reshape(outer, a // outer, segments, -1).swapaxes(1, 2)
        arrays = prefix, self.suffix, self.starts, self.of_suffix
        return [jnp.asarray(array) for array in arrays]

    def rows(self):
        p, s = self.matrices()
        return np.einsum("imk,ikn->imn", p[self.of_prefix], s[self.of_suffix])

    def gradients(self, d_rows):
        p, s = self.matrices()
        d = d_rows.reshape(-1, self.m, self.n).astype(np.float64)
        d_p, d_s = np.zeros_like(p), np.zeros_like(s)
        left = np.einsum("imn,ikn->imk", d, s[self.of_suffix])
        right = np.einsum("imk,imn->ikn", p[self.of_prefix], d)
        np.add.at(d_p, self.of_prefix, left)
        np.add.at(d_s, self.of_suffix, right)
        return d_p.reshape(self.prefix.shape), d_s.reshape(self.suffix.shape)


def assert_close(found, truth, tolerance):
    truth = truth.reshape(found.shape)
    scale = np.abs(truth).max(initial=1e-6)
    np.testing.assert_allclose(found, truth, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_rows_and_gradients(platform, sizes, exact):
    pairs = Pairs.random(*sizes)
    tolerance = 1e-6 if exact or platform == "cpu" else 2e-3
    how = {"rank": pairs.k, "exact": exact}
    rows = ops.pair_rows(*pairs.operands(), **how)
    assert_close(rows, pairs.rows(), tolerance)
    shape = len(pairs.of_suffix), pairs.m * pairs.n
    d_rows = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    found = ops.pair_gradients(*pairs.operands(), jnp.asarray(d_rows), **how)
    for mine, truth in zip(found, pairs.gradients(d_rows), strict=True):
        assert_close(mine, truth, 5 * tolerance)  # sums of many rows


HALF_SIZES = {
    "as in a table of 64 columns": (50, 40, 16, 32, 4, 700),
    "wide suffixes": (30, 25, 16, 64, 8, 400),
    "suffixes of several blocks": (12, 300, 16, 64, 8, 900),
    "32 ranks of 8 columns": (9, 60, 16, 32, 8, 300),
    "64 ranks of 4 columns": (7, 70, 16, 64, 4, 200),
}


def halves(operands):
    prefix, suffix, *others = operands
    return prefix.astype(jnp.bfloat16), suffix.astype(jnp.bfloat16), *others


def rounded(array):
    return np.asarray(jnp.asarray(array).astype(jnp.bfloat16).astype(jnp.float32))


@pytest.mark.parametrize("sizes", HALF_SIZES.values(), ids=HALF_SIZES.keys())
def test_factors_of_bfloat16(platform, sizes):
    """Sums are float32: only what is given and the results are rounded, once each."""
    pairs = Pairs.random(*sizes)
    pairs = dataclasses.replace(
        pairs, prefix=rounded(pairs.prefix), suffix=rounded(pairs.suffix)
    )
    half = halves(pairs.operands(outer=1, segments=4))
    rows = ops.pair_rows(*half, rank=pairs.k, exact=False)
    assert rows.dtype == jnp.bfloat16
    assert_close(np.asarray(rows, np.float32), pairs.rows(), 4e-3)
    d_rows = rounded(np.random.default_rng(1).normal(size=rows.shape))
    run = jax.jit(lambda *x: ops.pair_gradients(*x, rank=pairs.k, exact=False))
    d_prefix, d_suffix = run(*half, jnp.asarray(d_rows, jnp.bfloat16))
    want_prefix, want_suffix = pairs.gradients(d_rows)
    assert d_prefix.dtype == jnp.bfloat16 and d_suffix.dtype == jnp.float32
    found = np.asarray(d_prefix, np.float32).swapaxes(1, 2)
    assert_close(found.reshape(want_prefix.shape), want_prefix, 4e-3)
    assert_close(d_suffix, want_suffix, 1e-5)
    again = run(*half, jnp.asarray(d_rows, jnp.bfloat16))
    for mine, other in zip(again, (d_prefix, d_suffix), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_factors_of_bfloat16_without_a_suffix(platform):
    """An index that data can choose is harmless, as for float32."""
    pairs = Pairs.random(50, 40, 16, 32, 4, 700)
    prefix, suffix, starts, of_suffix = pairs.operands()
    wrong = np.arange(0, 700, 3)
    foreign = jnp.asarray(np.where(wrong % 2 == 0, 40, -(2**31)), jnp.int32)
    given = halves((prefix, suffix, starts, of_suffix.at[wrong].set(foreign)))
    rows = ops.pair_rows(*given, rank=32, exact=False)
    assert not np.any(np.asarray(rows, np.float32)[wrong])
    d_rows = jnp.full(rows.shape, jnp.nan, jnp.bfloat16).at[1::3].set(1).at[2::3].set(1)
    for gradient in ops.pair_gradients(*given, d_rows, rank=32, exact=False):
        assert np.isfinite(np.asarray(gradient, np.float32)).all()


def test_factors_of_bfloat16_of_other_sizes_are_refused(platform):
    assert not ops.may_be_half(8, 32, 4, 40)
    given = halves(Pairs.random(50, 40, 8, 32, 4, 700).operands())
    with pytest.raises(Exception, match="factors of bfloat16 must have 16 rows"):
        jax.block_until_ready(ops.pair_rows(*given, rank=32, exact=False))


def test_factors_of_two_types_are_refused(platform):
    prefix, *others = Pairs.random(50, 40, 16, 32, 4, 700).operands()
    given = prefix.astype(jnp.bfloat16), *others
    with pytest.raises(Exception, match="both factors must have one type"):
        jax.block_until_ready(ops.pair_rows(*given, rank=32, exact=False))


@pytest.mark.parametrize(("outer", "segments"), [(1, 4), (10, 2), (50, 16), (5, 1)])
@pytest.mark.parametrize("columns", [4, 48])
def test_prefixes_as_a_product_leaves_them(platform, outer, segments, columns):
    """In any order of prefixes and their rows: the same bits."""
    pairs = Pairs.random(50, 40, 16, 32, columns, 700)
    given, plain = pairs.operands(outer, segments), pairs.operands()
    how = {"rank": 32, "exact": False}
    rows = ops.pair_rows(*plain, **how)
    np.testing.assert_array_equal(ops.pair_rows(*given, **how), rows)
    d_prefix, d_suffix = ops.pair_gradients(*plain, rows, **how)
    mine, d_mine = ops.pair_gradients(*given, rows, **how)
    assert mine.shape == given[0].shape
    mine = np.asarray(mine).swapaxes(1, 2).reshape(50, -1)
    np.testing.assert_array_equal(mine, np.asarray(d_prefix).reshape(50, -1))
    np.testing.assert_array_equal(d_mine, d_suffix)


@pytest.mark.parametrize(("m", "n"), [(16, 4), (4, 32)])
def test_the_same_bits_in_every_run(platform, m, n):
    pairs = Pairs.random(40, 250, m, 32, n, 5000)
    d_rows = jnp.ones((5000, m * n))
    run = jax.jit(lambda *x: ops.pair_gradients(*x, rank=32, exact=False))
    first = run(*pairs.operands(), d_rows)
    for _ in range(3):
        for mine, other in zip(run(*pairs.operands(), d_rows), first, strict=True):
            np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize(("m", "n"), [(16, 4), (2, 32)])
def test_rows_without_a_suffix_are_zeros(platform, m, n):
    """An index that data can choose is harmless, and others keep their rows."""
    pairs = Pairs.random(50, 40, m, 32, n, 700)
    prefix, suffix, starts, of_suffix = pairs.operands()
    wrong = np.arange(0, 700, 3)
    foreign = jnp.asarray(np.where(wrong % 2 == 0, 40, -(2**31)), jnp.int32)
    how = {"rank": 32, "exact": True}
    given = prefix, suffix, starts, of_suffix.at[wrong].set(foreign)
    truth = pairs.rows()
    truth[wrong] = 0
    assert_close(ops.pair_rows(*given, **how), truth, 1e-6)
    d_rows = np.random.default_rng(2).normal(size=(700, 64)).astype(np.float32)
    found = ops.pair_gradients(*given, jnp.asarray(d_rows), **how)
    d_rows[wrong] = 0
    for mine, expected in zip(found, pairs.gradients(d_rows), strict=True):
        assert_close(mine, expected, 5e-6)


@pytest.mark.parametrize("starts", [[-5, 900, 3, 2**31 - 1], [2**31 - 1] * 4, [-1] * 4])
@pytest.mark.parametrize(("m", "n"), [(16, 4), (2, 32)])
def test_any_starts_are_harmless(platform, starts, m, n):
    pairs = Pairs.random(3, 40, m, 8, n, 100)
    prefix, suffix, _, of_suffix = pairs.operands()
    given = prefix, suffix, jnp.asarray(starts, jnp.int32), of_suffix
    how = {"rank": 8, "exact": True}
    assert ops.pair_rows(*given, **how).shape == (100, 64)
    found = ops.pair_gradients(*given, jnp.ones((100, 64)), **how)
    assert found[1].shape == suffix.shape


def test_sizes_that_do_not_fit_are_refused(platform):
    prefix, suffix, starts, of_suffix = Pairs.random(3, 4, 2, 8, 1, 5).operands()
    run = jax.jit(ops.pair_rows, static_argnames=("rank", "exact"))
    with pytest.raises(Exception, match="rank"):
        run(prefix, suffix, starts, of_suffix, rank=3, exact=True).block_until_ready()
    starts = starts[:-1]
    with pytest.raises(Exception, match="starts"):
        run(prefix, suffix, starts, of_suffix, rank=8, exact=True).block_until_ready()
