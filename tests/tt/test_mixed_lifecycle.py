# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tensor trains with residuals beside shared arrays: growth, erase, checkpoints."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from support import assert_same_rows, export

ROWS = 320
HOT = jde.TTConfig(
    "item",
    8,
    ROWS,
    (3, 3),
    ids="hash",
    initializer=jde.tt.normal(1.0),
    optimizer=jde.optim.sgd(0.1),
    pooling="sum",
    compute_dtype="float32",
    residual=1024,
)
# Two tables have one shape and share arrays on one device; one stands beside them.
DYNAMIC = [
    jde.TableConfig("user", 8, 1024, optimizer=jde.optim.adam(0.1)),
    jde.TableConfig("shop", 8, 1024, optimizer=jde.optim.adam(0.1)),
    jde.TableConfig("word", 16, 1024, optimizer=jde.optim.sgd(0.5)),
]


def collection(shards: int | None, residual: int = 1024) -> jde.Tables:
    mesh = None if shards is None else mesh_of(shards)
    train = dataclasses.replace(HOT, residual=residual)
    return jde.Tables([train, *DYNAMIC], mesh=mesh)


def batch(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    ids = {"item": rng.integers(-1, 10**12, (16, 2)) % 500}
    for config in DYNAMIC:
        ids[config.name] = rng.integers(-1, 200, 16)
    return {name: jde.ids(each) for name, each in ids.items()}


def steps(coll: jde.Tables, state: Any, seeds: Any) -> Any:
    @jax.jit
    def step(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        return coll.apply_gradients(
            state, residual, {n: jnp.cos(rows[n]) for n in rows}
        )

    for seed in seeds:
        state = step(state, batch(seed))
    return state


def rows_of(coll: jde.Tables, state: Any) -> dict[str, Any]:
    return {name: export(coll, state, name) for name in coll.engine.catalog.dynamic}


def assert_equal(mine: Any, theirs: Any) -> None:
    """The same bits in cores and rows; slots may differ."""
    (coll, state), (other, expected) = mine, theirs
    for ours, want in zip(state["item"].cores, expected["item"].cores, strict=True):
        np.testing.assert_array_equal(ours, want)
    want = rows_of(other, expected)
    for name, rows in rows_of(coll, state).items():
        assert_same_rows(rows, want[name])


def assert_near(mine: Any, theirs: Any) -> None:
    """The same rows where sums of devices may have another order."""
    (coll, state), (other, expected) = mine, theirs
    for ours, want in zip(state["item"].cores, expected["item"].cores, strict=True):
        np.testing.assert_allclose(ours, want, rtol=1e-5, atol=1e-5)
    want = rows_of(other, expected)
    for name, rows in rows_of(coll, state).items():
        assert rows.keys() == want[name].keys() != set()
        for key, row in rows.items():
            np.testing.assert_allclose(
                row.values, want[name][key].values, rtol=1e-4, atol=1e-5
            )


@pytest.mark.slow
@pytest.mark.parametrize(("shards", "residual"), [(None, 1024), (8, 1024), (8, 100)])
def test_growth_changes_no_row_and_no_later_step(shards, residual):
    coll = collection(shards, residual)
    start = steps(coll, coll.init(3), [0, 1])
    larger, grown = coll.grow(start, {"user": 2048, "item_residual": 2048})
    assert larger.tables["user"].capacity == 2048
    assert larger.tables["shop"].capacity == 1024
    assert_equal((larger, grown), (coll, start))
    later = steps(larger, grown, [2, 3])
    assert_near((larger, later), (coll, steps(coll, start, [2, 3])))
    assert larger.stats(later)["item_residual/lookups"] == 4


@pytest.mark.parametrize("shards", [None, 8])
def test_erase_and_clear(shards):
    coll = collection(shards)
    state = steps(coll, coll.init(3), [0, 1])
    before = rows_of(coll, state)
    gone = list(before["user"])[:5] + [10**9]
    erased = coll.erase(state, {"user": jde.ids(np.array(gone))})
    after = rows_of(coll, erased)
    kept = {key: row for key, row in before["user"].items() if key not in gone}
    assert_same_rows(after["user"], kept)
    for name in ("shop", "word", "item_residual"):
        assert_same_rows(after[name], before[name])
    for ours, want in zip(erased["item"].cores, state["item"].cores, strict=True):
        np.testing.assert_array_equal(ours, want)
    cleared = coll.clear(erased)
    assert all(not rows for rows in rows_of(coll, cleared).values())
    assert_near((coll, steps(coll, cleared, [0, 1])), (coll, state))


@pytest.mark.parametrize("residual", [100, 1024])
@pytest.mark.parametrize(("saved", "restored"), [(None, 8), (8, None)])
def test_checkpoints_of_both_kinds_move_between_layouts(
    tmp_path, saved, restored, residual
):
    """Eight devices cut the residual of 1,024 rows, and each has a copy of 100."""
    coll, other = collection(saved, residual), collection(restored, residual)
    state = steps(coll, coll.init(3), [0, 1])
    jde.checkpoint.save(tmp_path, 1, state, tables=coll)
    tree = jde.checkpoint.restore(tmp_path, other.init(9), tables=other).tree
    assert_equal((other, tree), (coll, state))


@pytest.mark.parametrize("shards", [None, 8])
def test_a_scan_of_steps_is_the_loop(shards):
    """Hashed ids with a residual: lookup and update inside of lax.scan."""
    coll = collection(shards)
    looped = steps(coll, coll.init(3), [0, 1, 2])

    def step(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        d_rows = {name: jnp.cos(rows[name]) for name in rows}
        return coll.apply_gradients(state, residual, d_rows), None

    batches = jax.tree.map(lambda *x: jnp.stack(x), *[batch(n) for n in range(3)])
    scanned, _ = jax.jit(lambda state, ids: jax.lax.scan(step, state, ids))(
        coll.init(3), batches
    )
    assert_near((coll, scanned), (coll, looped))


def test_tables_of_a_collection_with_a_tensor_train_share_arrays_by_default():
    coll = collection(None)
    assert coll.state_name("user") == coll.state_name("shop") == "user+1"
    apart = jde.Tables([HOT, *DYNAMIC], share_arrays=False)
    assert_equal(
        (coll, steps(coll, coll.init(3), [0, 1])),
        (apart, steps(apart, apart.init(3), [0, 1])),
    )
    with pytest.raises(ValueError, match=r"not \['user\+1'\]"):
        coll.lookup(apart.init(0), batch(0))


def test_tensor_trains_alone_take_no_dynamic_table_later():
    coll = jde.Tables([jde.TTConfig("item", 8, ROWS, 3)])
    with pytest.raises(ValueError, match=r"tensor trains only, so 'user'"):
        coll.with_tables([*coll.tables.values(), DYNAMIC[0]])
