# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A residual updates the tables that its lookup read, and no others."""

import jax
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from support import export

OPTIMIZERS = [jde.optim.sgd(0.5), jde.optim.adam(0.1), optax.adam(0.1)]


def tables(optimizer=OPTIMIZERS[0], **options):
    configs = [
        jde.TableConfig(name=name, dim=4, capacity=256, optimizer=optimizer)
        for name in "ab"
    ]
    return jde.Tables(configs, **options)


def batch(first):
    return {name: jde.ids(np.arange(first, first + 50)) for name in "ab"}


def ones(rows):
    return {name: np.ones(row.shape, np.float32) for name, row in rows.items()}


def contents(coll, state):
    return {
        (name, key): row.values.tolist()
        for name in "ab"
        for key, row in export(coll, state, name).items()
    }


def trained(coll, first):
    """A state after one lookup, the state before it, and the residual."""
    before = coll.init(0)
    _, _, before = coll.lookup(before, batch(1000))
    rows, residual, after = coll.lookup(before, batch(first))
    return before, after, residual, ones(rows)


@pytest.mark.parametrize("share_arrays", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=["sgd", "adam", "optax"])
def test_a_state_from_before_the_lookup_stays(platform, optimizer, share_arrays):
    coll = tables(optimizer, share_arrays=share_arrays)
    before, after, residual, d_rows = trained(coll, 0)
    old = contents(coll, before)
    new = jax.jit(coll.apply_gradients)(before, residual, d_rows)
    assert contents(coll, new) == old
    stats = coll.stats(new)
    assert [stats[f"{name}/lost_updates"] for name in "ab"] == [50, 50]
    assert [stats[f"{name}/step"] for name in "ab"] == [0, 0]
    with pytest.raises(ValueError, match="older than the lookup"):
        coll.apply_gradients(before, residual, d_rows)
    with pytest.raises(ValueError, match="older than the lookup"):
        coll.reduce_gradients(before, residual, d_rows)
    good = coll.stats(jax.jit(coll.apply_gradients)(after, residual, d_rows))
    assert [good[f"{name}/lost_updates"] for name in "ab"] == [0, 0]
    assert [good[f"{name}/step"] for name in "ab"] == [1, 1]


@pytest.mark.parametrize("share_arrays", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=["sgd", "adam", "optax"])
def test_the_residual_of_another_run_trains_nothing(platform, optimizer, share_arrays):
    coll = tables(optimizer, share_arrays=share_arrays)
    _, _, residual, d_rows = trained(coll, 0)
    _, other, _, _ = trained(coll, 500)  # same config, same seed, other ids
    old = contents(coll, other)
    new = jax.jit(coll.apply_gradients)(other, residual, d_rows)
    assert contents(coll, new) == old
    assert coll.stats(new)["a/lost_updates"] == 50
    with pytest.raises(ValueError, match="belongs to other tables"):
        coll.apply_gradients(other, residual, d_rows)


def test_a_later_state_takes_it(platform):
    """Lookups between a lookup and its update are what a pipeline does."""
    coll = tables()
    _, state, residual, d_rows = trained(coll, 0)
    _, _, state = coll.lookup(state, batch(0))
    old = contents(coll, state)
    new = contents(coll, coll.apply_gradients(state, residual, d_rows))
    for name in "ab":
        for key in range(50):
            moved = np.subtract(old[name, key], new[name, key])
            np.testing.assert_allclose(moved, 0.5, rtol=1e-6)


def test_a_cleared_table_gets_nothing_from_before(platform):
    coll = tables()
    _, state, residual, d_rows = trained(coll, 0)
    cleared = coll.clear(state)
    for _ in range(3):  # the clock passes that of the residual again
        _, _, cleared = coll.lookup(cleared, batch(700))
    old = contents(coll, cleared)
    new = coll.apply_gradients(cleared, residual, d_rows)
    assert contents(coll, new) == old
    assert coll.stats(new)["a/lost_updates"] == 50


def test_micro_batches(platform):
    """Lists of residuals, and residuals that scan stacked: one foreign is refused."""
    coll = tables()
    _, state, first, d_rows = trained(coll, 0)
    rows, second, state = coll.lookup(state, batch(20))
    new = coll.apply_gradients(state, [first, second], [d_rows, ones(rows)])
    assert coll.stats(new)["a/lost_updates"] == 0
    _, _, foreign, _ = trained(coll, 0)
    old = contents(coll, state)
    apply = jax.jit(coll.apply_gradients)
    new = apply(state, [first, foreign], [d_rows, d_rows])
    assert contents(coll, new) == old
    assert coll.stats(new)["a/lost_updates"] == 100

    def step(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        return state, (residual, ones(rows))

    ids = jax.tree.map(lambda *x: np.stack(x), batch(0), batch(30))
    after, (residuals, gradients) = jax.lax.scan(step, state, ids)
    new = coll.apply_gradients(after, residuals, gradients)
    assert coll.stats(new)["a/lost_updates"] == 0
    assert contents(coll, new) != contents(coll, after)
    late = apply(state, residuals, gradients)
    assert contents(coll, late) == contents(coll, state)


def test_equal_programs_still_give_equal_states(platform):
    """Stamps differ from run to run; nothing that a user reads does."""
    coll = tables()
    runs = []
    for _ in range(2):
        _, state, residual, d_rows = trained(coll, 0)
        state = coll.apply_gradients(state, residual, d_rows)
        runs.append((contents(coll, state), coll.stats(state)))
    assert runs[0] == runs[1]
