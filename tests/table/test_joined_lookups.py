# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One update of several lookups, of which a later one took the rows of an earlier one.

A slot then has two ids in one call. Every gradient goes to its own id, or is counted.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from support import export

OPTIMIZERS = {
    "sgd": jde.optim.sgd(1.0),
    "optax": optax.sgd(1.0),  # sums of gradients, then rows
    "clipped": jde.optim.sgd(1.0, clip_row_norm=1e9),  # the loop of all optimizers
}
OLD, NEW = np.arange(200), np.arange(1000, 1240)


def tables(optimizer="sgd", **options):
    config = {
        "dim": 4,
        "capacity": 256,
        "optimizer": OPTIMIZERS[optimizer],
        "initializer": jde.initializers.zeros(),
    }
    names = {name: options.pop(name) for name in ("mesh",) if name in options}
    return jde.Tables([jde.TableConfig("t", **config | options)], **names)


def two_lookups(coll, repeats=1):
    """Two lookups, whose ids occur several times: state, residuals, gradients."""
    state, residuals, d_rows = coll.init(0), [], []
    for ids, gradient in ((OLD, 1.0), (NEW, 10.0)):
        batch = np.tile(ids, repeats)
        _, residual, state = coll.lookup(state, {"t": jde.ids(batch)})
        residuals.append(residual)
        d_rows.append({"t": jnp.full((len(batch), 4), gradient)})
    return state, residuals, d_rows


def expected(coll, state, repeats):
    """Computes what rows become, and how many gradients have no row any more."""
    alive = set(export(coll, state, "t"))
    rows = {k: -repeats * 1.0 if k < 1000 else -repeats * 10.0 for k in alive}
    lost = sum(k not in alive for k in (*OLD, *NEW))
    assert lost > 100
    return rows, repeats * lost


def check(coll, state, new, repeats=1):
    rows, lost = expected(coll, state, repeats)
    assert {k: row.values[0] for k, row in export(coll, new, "t").items()} == rows
    assert coll.stats(new)["t/lost_updates"] == lost


@pytest.mark.parametrize("repeats", [1, 700])  # a GPU sorts many ids in another way
@pytest.mark.parametrize("late_first", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_each_gradient_goes_to_its_own_id(platform, optimizer, late_first, repeats):
    coll = tables(optimizer)
    state, residuals, d_rows = two_lookups(coll, repeats)
    order = slice(None, None, -1 if late_first else 1)
    new = coll.apply_gradients(state, residuals[order], d_rows[order])
    check(coll, state, new, repeats)


@pytest.mark.parametrize("late_first", [False, True])
def test_sums_of_gradients(platform, late_first):
    coll = tables()
    state, residuals, d_rows = two_lookups(coll)
    order = slice(None, None, -1 if late_first else 1)
    reduced, _ = coll.reduce_gradients(state, residuals[order], d_rows[order])
    sums = reduced["t"]
    live = np.asarray(sums.slots) >= 0
    keys = np.ascontiguousarray(np.asarray(sums.keys)[live]).view(np.int64)[:, 0]
    rows, _ = expected(coll, state, 1)
    sums = -np.asarray(sums.grads)[live, 0]
    assert dict(zip(keys.tolist(), sums, strict=True)) == rows


def test_lookups_that_scan_has_stacked(platform):
    coll = tables()

    def step(state, ids):
        rows, residual, state = coll.lookup(state, {"t": ids})
        return state, (residual, {"t": jnp.ones_like(rows["t"])})

    batches = jde.ids(np.stack([np.arange(200), np.arange(1000, 1200)]))
    state, (residuals, d_rows) = jax.lax.scan(step, coll.init(0), batches)
    new = coll.apply_gradients(state, residuals, d_rows)
    rows = export(coll, new, "t")
    assert {row.values[0] for row in rows.values()} == {-1.0}
    assert coll.stats(new)["t/lost_updates"] == 400 - len(rows) > 0


@pytest.mark.parametrize("late_first", [False, True])
def test_rows_of_a_tier(platform, late_first):
    coll = tables(tier=jde.tiers.host(hbm_fraction=0.5))
    state, residuals, d_rows = two_lookups(coll)
    order = slice(None, None, -1 if late_first else 1)
    new = coll.apply_gradients(state, residuals[order], d_rows[order])
    check(coll, state, new)


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["row_wise", "column_wise", "replicated"])
@pytest.mark.parametrize("late_first", [False, True])
def test_on_a_mesh(sharding, late_first):
    coll = tables(mesh=mesh_of(2), sharding=sharding, dim=8)
    state, residuals, d_rows = two_lookups(coll)
    d_rows = [{"t": jnp.tile(d["t"], (1, 2))} for d in d_rows]
    order = slice(None, None, -1 if late_first else 1)
    new = coll.apply_gradients(state, residuals[order], d_rows[order])
    check(coll, state, new)
