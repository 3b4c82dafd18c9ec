# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables that grow during training, against tables that were large from the start."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.lifecycle import memory as _memory
from meshes import mesh_of
from support import export

STEPS = 24


def configs(capacity: int, **options: Any) -> list[jde.TableConfig]:
    common: dict[str, Any] = {
        "capacity": capacity,
        "initializer": jde.initializers.normal(0.1),
        "optimizer": jde.optim.adam(0.05),
        "score_strategy": "no_eviction",
        **options,
    }
    crowded: dict[str, Any] = common | {"grow_at": 0.3}
    # On one device the first two share arrays.
    return [
        jde.TableConfig("a", dim=4, pooling="sum", **common),
        jde.TableConfig("b", dim=4, **common),
        jde.TableConfig("c", dim=2, **crowded),
    ]


def tables(capacity: int, devices: int, **options: Any) -> jde.Tables:
    mesh = mesh_of(devices) if devices > 1 else None
    return jde.Tables(configs(capacity, **options), mesh=mesh)


def ids_of(step: int) -> dict[str, jax.Array]:
    """Ids that are new in each step, 34 of a, 8 of b and 34 of c, and older ones."""
    draw = np.random.default_rng(step)

    def some(new: int) -> np.ndarray:
        first = new * step
        older = draw.integers(-1, first + new, 64 - new)
        return draw.permutation(np.append(np.arange(first, first + new), older))

    a, b, c = some(34), some(8), some(34)
    return {"a": jde.ids(a.reshape(32, 2)), "b": jde.ids(b), "c": jde.ids(c + 2**40)}


def make_step(coll: jde.Tables) -> Any:
    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(state, weight, ids):
        def loss(weight, rows):
            return sum(jnp.mean((r * weight - 1.0) ** 2) for r in rows.values())

        rows, residual, state = coll.lookup(state, ids)
        value, (slope, d_rows) = jax.value_and_grad(loss, (0, 1))(weight, rows)
        state = coll.apply_gradients(state, residual, d_rows)
        return state, weight - 0.1 * slope, value

    return step


def await_compilation(grower: jde.lifecycle.Grower) -> bool:
    """Waits for the background thread, which takes longer than these steps."""
    if (coming := grower._next) is None or coming.ready is None:
        return False
    coming.ready.exception(120)
    return True


def train(grower: jde.lifecycle.Grower, state: Any, steps: int = STEPS):
    weight, losses, sizes = jnp.float32(1), [], []
    for n in range(steps):
        state, weight, loss = grower.step(state, weight, ids_of(n))
        await_compilation(grower)
        state = grower.maybe_grow(state)
        losses.append(float(loss))
        sizes.append(grower.coll.tables["a"].num_slots)
    return state, losses, sizes


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "ahead"), [(1, True), (1, False), (8, True)])
def test_as_tables_that_were_large_from_the_start(devices, ahead):
    small, large = tables(1024, devices), tables(8192, devices)
    steady = jde.lifecycle.Grower(make_step, large, every=1000)
    expected, losses, _ = train(steady, large.init(3))
    grower = jde.lifecycle.Grower(make_step, small, every=2, ahead=ahead)
    state, own_losses, sizes = train(grower, small.init(3))
    assert own_losses == losses
    slots = {t.name: t.num_slots for t in grower.coll.tables.values()}
    assert slots["a"] >= 2048 and slots["b"] == 1024 and slots["c"] >= 2048
    assert sizes[0] == 1024 and sizes == sorted(sizes)
    for name in "abc":
        before, after = (
            export(large, expected, name),
            export(grower.coll, state, name),
        )
        assert before.keys() == after.keys() and before
        for key, row in before.items():
            np.testing.assert_array_equal(row.values, after[key].values)
            assert row.score == after[key].score
            for leaf, value in row.state.items():
                np.testing.assert_array_equal(value, after[key].state[leaf])
    stats = grower.coll.stats(state)
    assert stats["a/refused"] == stats["a/lost_updates"] == 0
    assert stats["a/step"] == STEPS


# The strict modes of the other tests are contexts of their thread, see Grower.
@jax.numpy_dtype_promotion("standard")
@jax.numpy_rank_promotion("allow")
@pytest.mark.parametrize("devices", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_the_next_step_is_compiled_on_another_thread(
    compilations, devices, monkeypatch
):
    """Steps, checks, swaps and first steps of a new size compile nothing.

    A swap makes no check, whose numbers it would drop.
    """
    checks, check = [], jde.Tables.stats_async
    monkeypatch.setattr(
        jde.Tables,
        "stats_async",
        lambda coll, state: checks.append(coll) or check(coll, state),
    )
    coll = tables(1024, devices)
    grower, sizes, swaps = jde.lifecycle.Grower(make_step, coll, every=1), set(), 0
    state, weight = coll.init(0), jnp.float32(1)
    for n in range(40):
        state, weight, _ = grower.step(state, weight, ids_of(n))
        await_compilation(grower)
        before = grower.coll
        state = jax.block_until_ready(grower.maybe_grow(state))
        swaps += grower.coll is not before
        sizes.add(grower.coll.tables["a"].num_slots)
        if n == 3:
            assert any("step" in name for name in compilations)
            compilations.clear()
    assert len(sizes) >= 2
    assert not compilations
    assert len(checks) == 40 - swaps


def test_a_device_without_room_keeps_its_tables(monkeypatch):
    coll = tables(1024, 1)
    grower = jde.lifecycle.Grower(make_step, coll, every=1, ahead=False)
    monkeypatch.setattr(_memory, "free_bytes", lambda device: 1000)
    # index 17 bytes a slot, dim 2 of float32, two states of it, 1,024 slots more
    with pytest.warns(
        RuntimeWarning, match=r"1024 to 2048 rows.*1,000 bytes free"
    ) as w:
        state, _, sizes = train(grower, coll.init(0), 14)
    assert grower.coll == coll and set(sizes) == {1024}
    assert coll.stats(state)["c/rows"] > 0.3 * 1024
    assert len(w) < 4  # once for each size, not in every check


def test_numbers_of_memory():
    coll = jde.Tables([jde.TableConfig("t", dim=8, capacity=1024)])
    growth = coll.plan_growth({"t": 4096})
    programs = growth.compile(coll.init(0))
    # 4,096 slots of 8 float32 and of 17 bytes, and counters of every shard
    arrays = 4096 * (8 * 4 + 17)
    assert arrays <= growth.needed_bytes(programs) <= 2.5 * arrays


def test_a_bound_is_kept_and_logged(caplog):
    coll = tables(1024, 1, max_capacity=2048)
    grower = jde.lifecycle.Grower(make_step, coll, every=1, ahead=False)
    train(grower, coll.init(0), 40)
    assert {t.num_slots for t in grower.coll.tables.values()} <= {1024, 2048}
    assert grower.coll.tables["c"].num_slots == 2048
    logged = [r.getMessage() for r in caplog.records if "'c'" in r.getMessage()]
    assert len(logged) == 1 and "largest size, 2048 rows" in logged[0]


def test_mistakes():
    coll = tables(1024, 1)
    with pytest.raises(ValueError, match="every must be a number of steps"):
        jde.lifecycle.Grower(make_step, coll, every=0)
    for wrong in ((coll, make_step), (3, coll), (make_step, [coll])):
        with pytest.raises(TypeError, match=r"Grower\(make_step, coll\), not"):
            jde.lifecycle.Grower(*wrong)  # pyright: ignore
    grower = jde.lifecycle.Grower(
        lambda coll: lambda state, ids: coll.lookup(state, ids)[2], coll, every=1
    )
    state = coll.init(0)
    with pytest.raises(TypeError, match="make_step must return a jitted function"):
        for n in range(200):
            state = grower.maybe_grow(grower.step(state, ids_of(n % 30)))
