# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A residual updates the states that its lookup led to, and no branch beside them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi
from meshes import mesh_of
from support import export

ON_MESH = ["row_wise", "column_wise", "replicated"]
ONES = {"t": jnp.ones((100, 8))}
NONCES = _ffi.constants()["num_nonces"]


def tables(sharding=None, optimizer=None):
    config = jde.TableConfig(
        "t",
        dim=8,
        capacity=256,
        optimizer=optimizer or jde.optim.sgd(1.0),
        initializer=jde.initializers.zeros(),
        **({} if sharding is None else {"sharding": sharding}),
    )
    return jde.Tables([config], mesh=None if sharding is None else mesh_of(2))


def look(coll, state, first=1000, count=100):
    ids = {"t": jde.ids(np.arange(first, first + count))}
    _, residual, state = coll.lookup(state, ids)
    return residual, state


def check_foreign(coll, state, residual, message):
    """Outside of jit it is refused; inside it counts, and no row changes."""
    with pytest.raises(ValueError, match=message):
        coll.apply_gradients(state, residual, ONES)
    with pytest.raises(ValueError, match=message):
        coll.reduce_gradients(state, residual, ONES)
    new = jax.jit(coll.apply_gradients)(state, residual, ONES)
    assert all(not row.values.any() for row in export(coll, new, "t").values())
    stats = coll.stats(new)
    assert stats["t/lost_updates"] > 0 and stats["t/step"] == 0


def check_own(coll, state, residual):
    for apply in (coll.apply_gradients, jax.jit(coll.apply_gradients)):
        new = apply(state, residual, ONES)
        rows = export(coll, new, "t")
        assert all((rows[key].values == -1).all() for key in range(1000, 1100))
        assert coll.stats(new)["t/lost_updates"] == 0


@pytest.mark.parametrize("optimizer", [None, jde.optim.adam(0.1), optax.sgd(1.0)])
def test_a_sibling_of_the_state(platform, optimizer):
    coll = tables(optimizer=optimizer)
    _, start = look(coll, coll.init(0), 0, 50)
    residual, _ = look(coll, start)
    _, sibling = look(coll, start, 5000)
    if optimizer is None:
        check_foreign(coll, sibling, residual, "another branch")
    with pytest.raises(ValueError, match="another branch"):
        coll.apply_gradients(sibling, residual, ONES)
    new = jax.jit(coll.apply_gradients)(sibling, residual, ONES)
    assert coll.stats(new)["t/lost_updates"] == 100


@pytest.mark.parametrize("sharding", ON_MESH)
def test_branches_on_a_mesh(sharding):
    coll = tables(sharding)
    _, start = look(coll, coll.init(0), 0, 50)
    residual, own = look(coll, start)
    _, sibling = look(coll, start, 5000)
    check_own(coll, own, residual)
    check_foreign(coll, sibling, residual, "another branch")
    check_foreign(coll, start, residual, "older than the lookup")


@pytest.mark.parametrize("sharding", [None, *ON_MESH])
def test_a_restore_between_lookup_and_update(tmp_path, sharding):
    coll = tables(sharding)
    _, start = look(coll, coll.init(0), 0, 50)
    jde.checkpoint.save(tmp_path, 1, start, tables=coll, wait=True)
    residual, _ = look(coll, start)
    back = jde.checkpoint.restore(tmp_path, coll.init(0), tables=coll).tree
    # It has had as many lookups as the state of the residual.
    _, back = look(coll, back, 5000)
    check_foreign(coll, back, residual, "another branch")
    check_own(coll, *reversed(look(coll, back)))


def test_two_runs_that_were_restored(tmp_path):
    coll, states = tables(), []
    for run in range(2):
        _, state = look(coll, coll.init(0), 100 * run, 50)
        jde.checkpoint.save(tmp_path / str(run), 1, state, tables=coll, wait=True)
        where = tmp_path / str(run), coll.init(0)
        back = jde.checkpoint.restore(*where, tables=coll).tree
        states.append(look(coll, back, 1000 + 1000 * run))
    check_foreign(coll, states[1][1], states[0][0], "belongs to other tables")


@pytest.mark.parametrize("sharding", [None, *ON_MESH])
def test_lookups_between_a_lookup_and_its_update(sharding):
    coll = tables(sharding)
    residual, state = look(coll, coll.init(0))
    evaluate = jax.jit(
        lambda s: coll.lookup(s, {"t": jde.ids(np.arange(9))}, insert=False)[2]
    )
    for _ in range(NONCES - 1):
        state = evaluate(state)
    check_own(coll, state, residual)
    with pytest.raises(ValueError, match="16 lookups came in between"):
        coll.apply_gradients(evaluate(state), residual, ONES)


def stacked(coll, state, batches):
    """As many lookups as there are batches, by scan."""

    def step(state, ids):
        rows, residual, state = coll.lookup(state, {"t": ids})
        return state, (residual, {"t": jnp.ones_like(rows["t"])})

    return jax.lax.scan(step, state, batches)


def test_a_thousand_micro_batches(platform):
    coll = tables()
    batches = jde.ids(np.tile(np.arange(8), (1000, 1)))
    state, (residuals, d_rows) = stacked(coll, coll.init(0), batches)
    late, state = look(coll, state)  # another one in between
    for apply in (coll.apply_gradients, jax.jit(coll.apply_gradients)):
        for many in ([residuals, late], [late, residuals]):
            gradients = [d_rows, ONES] if many[0] is residuals else [ONES, d_rows]
            new = apply(state, many, gradients)
            rows = export(coll, new, "t")
            assert all((rows[key].values == -1000).all() for key in range(8))
            assert all((rows[key].values == -1).all() for key in range(1000, 1100))
            assert coll.stats(new)["t/lost_updates"] == 0


def test_one_of_many_is_of_a_branch(platform):
    coll = tables()
    batches = jde.ids(np.tile(np.arange(8), (20, 1)))
    state, (residuals, d_rows) = stacked(coll, coll.init(0), batches)
    foreign, _ = look(coll, state, 5000)
    late, state = look(coll, state)
    many, gradients = [residuals, foreign, late], [d_rows, ONES, ONES]
    with pytest.raises(ValueError, match="another branch"):
        coll.apply_gradients(state, many, gradients)
    new = jax.jit(coll.apply_gradients)(state, many, gradients)
    assert all(not row.values.any() for row in export(coll, new, "t").values())
    assert coll.stats(new)["t/lost_updates"] == 20 * 8 + 200


def test_a_gap_in_many(platform):
    """An early lookup is neither one of the latest nor followed by one of the list."""
    coll = tables()
    early, state = look(coll, coll.init(0))
    for _ in range(NONCES):
        _, state = look(coll, state, 0, 5)
    late, state = look(coll, state)
    with pytest.raises(ValueError, match="16 lookups"):
        coll.apply_gradients(state, [early, late], [ONES, ONES])


def test_the_state_of_another_table_of_equal_shapes(platform):
    names = "ab"
    coll = jde.Tables(
        [jde.TableConfig(name, dim=4, capacity=256) for name in names],
        share_arrays=False,
    )
    ids = {name: jde.ids(np.arange(9)) for name in names}
    rows, residual, state = coll.lookup(coll.init(0), ids)
    swapped = {"a": state["b"], "b": state["a"]}
    message = r"state\['a'\] holds the arrays of 'b'"
    for apply in (coll.apply_gradients, jax.jit(coll.apply_gradients)):
        with pytest.raises(ValueError, match=message):
            apply(swapped, residual, rows)
    for find in (coll.find, jax.jit(coll.find), coll.lookup, jax.jit(coll.lookup)):
        with pytest.raises(ValueError, match=message):
            find(swapped, ids)
    with pytest.raises(ValueError, match=message):
        coll.stats(swapped)
    # Also where the arrays say nothing: each table has drawn its own nonce.
    state = {n: dataclasses.replace(each, name="") for n, each in swapped.items()}
    with pytest.raises(ValueError, match="another branch"):
        coll.apply_gradients(state, residual, rows)


def test_a_table_that_was_renamed(platform):
    """The advice of the error is taken."""
    old = jde.Tables([jde.TableConfig("old", dim=4, capacity=256)])
    new = jde.Tables([jde.TableConfig("new", dim=4, capacity=256)])
    _, _, state = old.lookup(old.init(0), {"old": jde.ids(np.arange(9))})
    renamed = {"new": state["old"]}
    with pytest.raises(ValueError, match=r"replace\(state\['new'\], name='new'\)"):
        new.find(renamed, {"new": jde.ids(np.arange(9))})
    renamed = {"new": dataclasses.replace(renamed["new"], name="new")}
    assert new.find(renamed, {"new": jde.ids(np.arange(9))})[1]["new"].all()
