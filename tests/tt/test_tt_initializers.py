# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The laws of the table's entries, against their closed forms."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from oracle import tt_table

LAWS = {
    "tail_normal": jde.tt.tail_normal,
    "normal": jde.tt.normal,
    "uniform": jde.tt.uniform,
    "approx_uniform": jde.tt.approx_uniform,
    "orthogonal": jde.tt.orthogonal,
}
SHAPES = {
    2: ((120, 110), (4, 4), (16,)),
    3: ((40, 44, 50), (4, 2, 4), (16, 16)),
    4: ((20, 18, 20, 16), (2, 2, 2, 2), (8, 8, 8)),
}


@functools.partial(jax.jit, static_argnums=0)
def init(config: jde.TTConfig, seed: jax.Array) -> jde.tt.TTState:
    return jde.tt.init(config, seed)


def table_of(law, cores: int, seed: int = 0, **options) -> np.ndarray:
    rows, columns, ranks = SHAPES[cores]
    config = jde.TTConfig(
        options.get("name", "t"),
        math.prod(columns),
        math.prod(rows),
        ranks,
        rows_shape=rows,
        dim_shape=columns,
        initializer=law,
    )
    state = init(config, jnp.uint32(seed))
    return tt_table([np.asarray(core) for core in state.cores])


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("cores", SHAPES)
def test_mean_and_standard_deviation(law, cores):
    """Within 2 %, over draws: the cores of one draw are few numbers."""
    tables = [table_of(LAWS[law](), cores, seed) for seed in range(6)]
    want = 1 / math.sqrt(3 * len(tables[0]))
    spread = math.sqrt(np.mean([np.mean(table**2) for table in tables]))
    assert abs(spread / want - 1) < 0.02
    assert abs(np.mean([table.mean() for table in tables])) < 0.02 * want
    given = table_of(LAWS[law](0.5), cores)
    assert abs(given.std() / 0.5 - 1) < 0.08


def kurtosis(table: np.ndarray) -> float:
    return float(np.mean(table**4) / np.mean(table**2) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("cores", SHAPES)
def test_kurtosis(cores):
    """Closed forms: 3 * prod(1 + 2 / R) for normal cores, 1.8 for a uniform law."""
    ranks = SHAPES[cores][2]
    means = {
        law: np.mean([kurtosis(table_of(LAWS[law](), cores, s)) for s in range(6)])
        for law in ("normal", "tail_normal", "approx_uniform")
    }
    expected = 3 * math.prod(1 + 2 / rank for rank in ranks)
    assert abs(means["normal"] / expected - 1) < 0.1
    # Near that of a normal law, where plain normal cores are far from it.
    assert abs(means["tail_normal"] - 3) < min(0.7, 0.5 * (expected - 3) + 0.1)
    assert abs(means["approx_uniform"] - 1.8) < 0.05


@pytest.mark.parametrize("rank", [8, 16, 32])
def test_the_scale_of_fbtts_default(rank):
    """FBTT draws normal numbers beyond 2, times (3 N)**(-1/6), whatever the ranks.

    Its table is sqrt(prod(R) * 5.746**3) times too large: 110 times at rank 8, 220 at
    16, 441 at 32. ``tail_normal`` with so large a standard deviation has its law.
    """
    rows, columns = (12, 12, 12), (2, 2, 4)
    total, rng = math.prod(rows), np.random.default_rng(0)

    def fbtt(*shape: int) -> np.ndarray:
        draws = rng.normal(size=(30 * math.prod(shape),))
        return draws[np.abs(draws) > 2][: math.prod(shape)].reshape(shape)

    shapes = list(zip(rows, (1, rank, rank), columns, (rank, rank, 1), strict=True))
    tables = [
        tt_table([(3 * total) ** (-1 / 6) * fbtt(*shape) for shape in shapes])
        for _ in range(4)
    ]
    spread = math.sqrt(np.mean([np.mean(table**2) for table in tables]))
    factor = spread * math.sqrt(3 * total)
    assert abs(factor / (rank * 5.7464**1.5) - 1) < 0.05
    law = jde.tt.tail_normal(spread)
    config = jde.TTConfig("t", 16, total, rank, rows, columns, initializer=law)
    mine = [np.asarray(core) for core in init(config, jnp.uint32(0)).cores]
    assert abs(tt_table(mine).std() / spread - 1) < 0.08


@pytest.mark.parametrize("law", LAWS)
def test_a_function_of_seed_and_name(law):
    first = table_of(LAWS[law](), 3)
    np.testing.assert_array_equal(first, table_of(LAWS[law](), 3))
    assert not np.allclose(first, table_of(LAWS[law](), 3, seed=1))
    assert not np.allclose(first, table_of(LAWS[law](), 3, name="u"))


def test_orthogonal_cores():
    config = jde.TTConfig("t", 16, 1000, (8, 8), initializer=jde.tt.orthogonal())
    for core in jde.tt.init(config, 0).cores[:-1]:
        columns = np.asarray(core).reshape(-1, core.shape[3])
        np.testing.assert_allclose(columns.T @ columns, np.eye(8), atol=1e-5)


def found_again(dense: np.ndarray) -> np.ndarray:
    """The first 950 rows of the cores that were made from a dense table."""
    config = jde.TTConfig(
        "t",
        16,
        950,
        (12, 10),
        rows_shape=(10, 10, 10),
        initializer=jde.tt.from_dense(dense),
    )
    again = jde.tt.init(config, 1)
    return np.concatenate(list(jde.tt.full_weight(config, again.cores)))


def test_a_table_of_low_rank_is_found_again_and_missing_rows_are_named():
    whole = jde.TTConfig("t", 16, 1000, (6, 5), rows_shape=(10, 10, 10))
    state = jde.tt.init(whole, 0)
    dense = np.concatenate(list(jde.tt.full_weight(whole, state.cores)))
    largest = np.abs(dense).max()
    assert np.abs(found_again(dense) - dense[:950]).max() < 1e-5 * largest
    with pytest.warns(UserWarning, match="rows 0 to 950 - 1.* 50 from 950 on") as said:
        found = found_again(dense[:950])
    # The missing 50 rows count as 0, which no table of these ranks has there.
    assert np.abs(found - dense[:950]).max() < 0.5 * largest
    assert "np.resize(table, (1000, table.shape[1]))" in str(said[0].message)
    repeated = found_again(np.resize(dense[:950], (1000, 16)))  # what it advises
    assert np.abs(repeated - dense[:950]).max() < 0.5 * largest


@pytest.mark.parametrize("cores", SHAPES)
def test_the_error_of_a_truncated_table_is_within_its_bound(cores):
    rows, columns, ranks = SHAPES[cores]
    shapes = jde.TTConfig(
        "t",
        math.prod(columns),
        math.prod(rows),
        ranks,
        rows_shape=rows,
        dim_shape=columns,
    ).core_shapes
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(math.prod(rows), math.prod(columns)))
    found, bound = jde.tt.decompose(dense, shapes)
    error = np.linalg.norm(tt_table(found) - dense)
    assert [core.shape for core in found] == list(shapes)
    assert 0.5 * bound < error <= bound * (1 + 1e-9)


def test_a_table_of_exact_ranks_has_no_error():
    config = jde.TTConfig("t", 16, 1000, (6, 5), rows_shape=(10, 10, 10))
    cores = [np.asarray(core) for core in jde.tt.init(config, 0).cores]
    dense = tt_table(cores)
    found, bound = jde.tt.decompose(dense, config.core_shapes)
    np.testing.assert_allclose(tt_table(found), dense, atol=1e-12)
    assert bound < 1e-9
