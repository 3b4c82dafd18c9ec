# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Lookups that read rows with the decay that is due, beside the oracle."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from support import HostJagged, Twins, compiled, export, gradients

DIM = 16
DUE: Any = {"catch_up": "decay", "catch_up_forward": True}
OPTIMIZERS = {
    "rowwise_adagrad": jde.optim.rowwise_adagrad(0.2, weight_decay=0.5, **DUE),
    "floor": jde.optim.rowwise_adagrad(
        0.5, weight_decay=1.5, catch_up_floor=0.3, catch_up_start=3, **DUE
    ),
    "adam": jde.optim.adam(0.05, weight_decay=2.0, **DUE),
    "schedule": jde.optim.adam(lambda n: 0.1 / (1.0 + n), weight_decay=2.0, **DUE),
}


def table(optimizer, **options):
    initializer = jde.initializers.normal(1.0)
    options = {"optimizer": optimizer, "initializer": initializer} | options
    return jde.TableConfig("t", DIM, 256, **options)


@pytest.mark.parametrize("pooling", [None, "sum", "mean"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_lookups_read_what_the_next_update_decays(platform, name, pooling):
    """Rows that were absent for a while, new ones, padding, duplicates."""
    twins = Twins(table(OPTIMIZERS[name], pooling=pooling))
    stored = None
    for step in range(6):
        draw = np.random.default_rng(step)
        ids = draw.integers(-1, 8, (4, 3)) + 8 * (step % 3)
        twins.train({"t": np.where(ids % 8 == 7, -1, ids)}, seed=step)
        before = stored
        stored = export(twins.coll, twins.state, "t")
        if before is not None:  # a lookup alone stores nothing
            twins.lookup({"t": np.arange(4)})
            after = export(twins.coll, twins.state, "t")
            for key, row in stored.items():
                np.testing.assert_array_equal(after[key].values, row.values)
    twins.find({"t": np.arange(12).reshape(4, 3)})  # rows as they are stored
    twins.check()


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_weights_and_bags_of_any_length(platform, pooling):
    twins = Twins(table(OPTIMIZERS["rowwise_adagrad"], pooling=pooling))
    draw = np.random.default_rng(0)
    for step in range(5):
        values = draw.integers(0, 9, 12) + 5 * (step % 2)
        ids = {"t": HostJagged(values, np.array([3, 0, 5, 2], np.int32))}
        weights = {"t": draw.uniform(0.5, 2.0, 12).astype(np.float32)}
        rows, residuals = twins.lookup(ids, weights)
        d_rows = {"t": gradients(rows["t"].shape, step)}
        twins.weight_gradients(residuals, d_rows)
        twins.apply(residuals, d_rows)
    twins.check()


def test_a_row_of_a_returned_id_owes_nothing(platform):
    """The states of the row that had its slot before are not its own."""
    twins = Twins(table(OPTIMIZERS["adam"]))
    for step in range(4):
        twins.train({"t": [1, 2]}, seed=step)
    twins.erase({"t": [1]})
    twins.train({"t": [2]}, seed=9)
    twins.lookup({"t": [1, 2, 3]})
    twins.check()


def test_rows_of_16_bits_are_rounded_once(platform):
    """The product of a row and its decay is float32 until it is returned."""
    optimizer = OPTIMIZERS["rowwise_adagrad"]
    for dtype in ("float32", "bfloat16"):
        twins = Twins(table(optimizer, param_dtype="bfloat16", dtype=dtype))
        for step in range(4):
            ids = [0, 1, 2] if step in (0, 3) else [step]
            twins.train({"t": ids}, seed=step)
        twins.lookup({"t": [0, 1, 2]})


def test_other_tables_of_the_call_stay_as_they_are(platform):
    """One lookup of several tables, some of which show their decay; one compilation."""
    plain = jde.optim.rowwise_adagrad(0.2, weight_decay=0.5, catch_up="decay")
    own = [table(OPTIMIZERS["adam"]), jde.TableConfig("u", DIM, 256, optimizer=plain)]
    twins = Twins(*own)
    for step in range(4):
        ids = np.arange(3) + step % 2
        twins.train({"t": ids, "u": ids[::-1].copy()}, seed=step)
    assert compiled(twins.coll).lookup._cache_size() == 1
    twins.check()


def test_gradients_are_those_of_the_rows_that_were_read(platform):
    """A loss of the rows: the update takes its gradient as it is."""
    coll = jde.Tables([table(OPTIMIZERS["rowwise_adagrad"])])
    ids = {"t": jde.ids(np.arange(3))}
    some = {"t": jde.ids(np.array([0, -1, -1]))}

    @jax.jit
    def step(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        d_rows = jax.grad(lambda rows: jnp.sum(rows["t"] ** 2))(rows)
        return rows["t"], coll.apply_gradients(state, residual, d_rows)

    _, state = step(coll.init(0), ids)
    for _ in range(3):
        _, state = step(state, some)
    stored = export(coll, state, "t")
    rows, state = step(state, ids)
    factors = [1.0, 0.9**3, 0.9**3]  # 1 - 0.2 * 0.5 for each missed update
    for key, factor in enumerate(factors):
        np.testing.assert_allclose(rows[key], factor * stored[key].values, rtol=1e-6)
    sums = {k: float(row.state["sum_of_squares"]) for k, row in stored.items()}
    for key, row in export(coll, state, "t").items():
        read, g = np.asarray(rows[key]), 2 * np.asarray(rows[key])
        rate = 0.2 / np.sqrt(sums[key] + np.mean(g * g))
        np.testing.assert_allclose(row.values, 0.9 * read - rate * g, rtol=2e-5)


def test_what_it_cannot_be_had_with():
    with pytest.raises(ValueError, match=r"catch_up_forward=True.*Leave it out"):
        jde.Tables([table(OPTIMIZERS["adam"])], mesh=mesh_of(2))
    for name in ("catch_up_start", "catch_up_forward"):
        option: Any = {name: 1}
        with pytest.raises(ValueError, match="belong to catch_up='decay'"):
            jde.optim.adam(0.1, **option)
        with pytest.raises(ValueError, match="belong to catch_up='decay'"):
            jde.optim.rowwise_adagrad(0.1, **option)
    with pytest.raises(ValueError, match="start must not be negative"):
        jde.optim.adam(0.1, catch_up="decay", catch_up_start=-1)
