# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Only the state that a lookup led to is trained by its gradients."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

import jax_dynemb as jde
from jax_dynemb._src.tt import COUNTERS

ITEM = jde.TTConfig(
    "item", 4, num_embeddings=60, ranks=(3, 3), optimizer=jde.optim.adam(0.1)
)
OTHER = dataclasses.replace(ITEM, name="other", feature_names=("other",))
IDS = {"item": jde.ids(np.arange(8))}
OTHER_IDS = {"item": jde.ids(np.arange(8) + 20)}
ONES = {"item": jnp.ones((8, 4))}


def virtual_mesh(devices: int) -> Mesh:
    return Mesh(np.array(jax.devices("cpu")[:devices]), "d")


@functools.cache
def made(mesh: bool):
    """A collection and its calls."""
    coll = jde.Tables([ITEM, OTHER], mesh=virtual_mesh(2) if mesh else None)
    return coll, jax.jit(coll.lookup), jax.jit(coll.apply_gradients)


def same_cores(a, b) -> bool:
    pairs = zip(jax.tree.leaves(a.cores), jax.tree.leaves(b.cores), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def check_lost(coll, apply, state, residual, words, rows=8):
    """Refused outside of jit; inside nothing is trained, and the rows are counted."""
    with pytest.raises(ValueError, match=words):
        coll.apply_gradients(state, residual, ONES)
    new = apply(state, residual, ONES)
    assert same_cores(new["item"], state["item"])
    kept = zip(
        *(jax.tree.leaves(s["item"].optimizer) for s in (new, state)), strict=True
    )
    assert all(np.array_equal(x, y) for x, y in kept)
    before, after = (coll.stats(s)["item/lost_updates"] for s in (state, new))
    assert after - before == rows


def check_taken(coll, apply, state, residual):
    new = apply(state, residual, ONES)
    assert not same_cores(new["item"], state["item"])
    assert coll.stats(new)["item/lost_updates"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [False, True])
def test_another_run(mesh):
    coll, look, apply = made(mesh)
    _, residual, mine = look(coll.init(0), IDS)
    _, _, theirs = look(coll.init(0), IDS)
    check_lost(coll, apply, theirs, residual, "belongs to other tables")
    check_taken(coll, apply, mine, residual)


@pytest.mark.parametrize("mesh", [False, True])
def test_a_branch(mesh):
    """Branches differ by what was looked up, or by an update between."""
    coll, look, apply = made(mesh)
    _, first, root = look(coll.init(0), IDS)
    _, residual, mine = look(root, IDS)
    _, _, theirs = look(root, OTHER_IDS)
    check_lost(coll, apply, theirs, residual, "another branch")
    check_taken(coll, apply, mine, residual)
    _, _, trained = look(apply(root, first, ONES), IDS)
    check_lost(coll, apply, trained, residual, "another branch")
    check_lost(coll, apply, root, residual, "older than the lookup")


def test_other_weights_and_bags_are_another_branch():
    config = dataclasses.replace(ITEM, pooling="sum")
    coll = jde.Tables([config])
    root, ids = coll.init(0), np.arange(8)

    def bags(lengths):
        return {"item": jde.Jagged(jde.ids(ids), jnp.array(lengths))}

    weights = {"item": jnp.full((8, 1), 0.5)}
    flat = {"item": jde.ids(ids[:, None])}
    lookups = [
        coll.lookup(root, bags([3, 5])),
        coll.lookup(root, bags([5, 3])),
        coll.lookup(root, flat, weights=weights),
        coll.lookup(root, flat, weights={"item": weights["item"] + 1}),
    ]
    for n, (rows, residual, _) in enumerate(lookups):
        for m, (_, _, state) in enumerate(lookups):
            if m == n:
                coll.apply_gradients(state, residual, rows)
                continue
            with pytest.raises(ValueError, match="another branch"):
                coll.apply_gradients(state, residual, rows)


@pytest.mark.parametrize("mesh", [False, True])
def test_a_restore(mesh, tmp_path):
    coll, look, apply = made(mesh)
    _, residual, state = look(coll.init(0), IDS)
    jde.checkpoint.save(tmp_path, 1, state, tables=coll, wait=True)
    again = jde.Tables([ITEM, OTHER], mesh=virtual_mesh(2) if mesh else None)
    one, two = (
        jde.checkpoint.restore(tmp_path, again.init(n), tables=again).tree
        for n in (1, 2)
    )
    assert same_cores(one["item"], state["item"])
    check_lost(coll, apply, one, residual, "restored since")
    _, late, one = look(one, IDS)
    _, _, two = look(two, IDS)
    check_lost(coll, apply, two, late, "another branch")
    check_taken(coll, apply, one, late)


def test_several_lookups_are_one_update():
    """More than the state remembers: each fits by the one after it."""
    coll, look, apply = made(False)
    state, residuals = coll.init(0), []
    for _ in range(20):
        _, residual, state = look(state, IDS)
        residuals.append(residual)
    check_lost(coll, apply, state, residuals[3], "16 lookups came in between")
    new = coll.apply_gradients(state, residuals, [ONES] * 20)
    assert not same_cores(new["item"], state["item"])
    assert coll.stats(new)["item/lost_updates"] == 0
    gap = [*residuals[:2], *residuals[3:]]
    with pytest.raises(ValueError, match="another branch"):
        coll.apply_gradients(state, gap, [ONES] * 19)


def test_micro_batches_of_a_scan():
    coll, _, _ = made(False)

    @jax.jit
    def step(state):
        def one(state, ids):
            _, residual, state = coll.lookup(state, {"item": ids})
            return state, residual

        numbers = np.arange(160).reshape(20, 8) % 60
        state, residual = jax.lax.scan(one, state, jde.ids(numbers))
        grads = {"item": jnp.ones((20, 8, 4))}
        return state, residual, coll.apply_gradients(state, residual, grads)

    looked, residual, new = step(coll.init(0))
    assert not same_cores(new["item"], looked["item"])
    other, _, _ = step(coll.init(0))
    lost = jax.jit(coll.apply_gradients)(
        other, residual, {"item": jnp.ones((20, 8, 4))}
    )
    assert same_cores(lost["item"], other["item"])
    assert coll.stats(lost)["item/lost_updates"] == 160


def test_sums_for_optax_are_zeros():
    coll, look, _ = made(False)
    _, residual, mine = look(coll.init(0), IDS)
    _, _, theirs = look(coll.init(0), IDS)
    with pytest.raises(ValueError, match="reduce_gradients: the residual belongs"):
        coll.reduce_gradients(theirs, residual, ONES)
    reduce = jax.jit(coll.reduce_gradients)
    sums, state = reduce(theirs, residual, ONES)
    assert float(sums["item"].sum_of_squares()) == 0
    assert coll.stats(state)["item/lost_updates"] == 8
    sums, state = reduce(mine, residual, ONES)
    assert float(sums["item"].sum_of_squares()) > 0
    assert coll.stats(state)["item/lost_updates"] == 0


def test_a_clear():
    coll, look, apply = made(False)
    _, residual, state = look(coll.init(0), IDS)
    check_lost(coll, apply, coll.clear(state), residual, "another branch")


def test_the_state_of_another_table():
    coll, look, _ = made(False)
    state = coll.init(0)
    swapped = {"item": state["other"], "other": state["item"]}
    with pytest.raises(ValueError, match=r"holds the arrays of 'other'"):
        look(swapped, IDS)
    renamed = {n: dataclasses.replace(s, name=n) for n, s in swapped.items()}
    coll.lookup(renamed, IDS)  # the advice of the sentence


def test_functions_of_one_table():
    lookup, apply = (
        jax.jit(f, static_argnums=0) for f in (jde.tt.lookup, jde.tt.apply_gradients)
    )
    _, residual, mine = lookup(ITEM, jde.tt.init(ITEM), IDS["item"])
    _, _, theirs = lookup(ITEM, jde.tt.init(ITEM), IDS["item"])
    with pytest.raises(ValueError, match="belongs to other tables"):
        jde.tt.apply_gradients(ITEM, theirs, residual, ONES["item"])
    lost = apply(ITEM, theirs, residual, ONES["item"])
    assert same_cores(lost, theirs)
    assert int(lost.counters[COUNTERS.index("lost_updates")]) == 8
    assert not same_cores(apply(ITEM, mine, residual, ONES["item"]), mine)


def test_checkpoints_of_earlier_versions(tmp_path):
    coll, look, apply = made(False)
    _, _, state = look(coll.init(0), {"item": jde.ids([99, 5])})
    old = {n: dataclasses.replace(s, counters=s.counters[:3]) for n, s in state.items()}
    jde.checkpoint.save(tmp_path, 1, old, tables=coll, wait=True)
    restored = jde.checkpoint.restore(tmp_path, coll.init(1), tables=coll)
    assert "fewer counters" in restored.notes[0]
    assert coll.stats(restored.tree)["item/out_of_range"] == 1
    _, residual, new = look(restored.tree, IDS)
    check_taken(coll, apply, new, residual)
    check_lost(coll, apply, coll.init(0), residual, "belongs to other tables")
