# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks what the compiled program does and does not hold."""

import functools
import logging
import re
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb.testing import assert_in_place
from support import assert_same_rows, export, random_batch, train_step


def schedule(count: jax.Array) -> jax.Array:
    """A learning rate that changes in every step."""
    return 0.1 / (1.0 + count.astype(jnp.float32))


OPTIMIZERS = {
    "sgd": jde.optim.sgd(0.1),
    "adagrad": jde.optim.adagrad(0.1),
    "rowwise_adagrad": jde.optim.rowwise_adagrad(0.1),
    "adam": jde.optim.adam(schedule),
}


def collection(optimizer: str = "adam", capacity: int = 8192) -> jde.Tables:
    return jde.Tables(
        [
            jde.TableConfig(
                name="t",
                dim=16,
                capacity=capacity,
                feature_names=("a", "b"),
                optimizer=OPTIMIZERS[optimizer],
            ),
            jde.TableConfig(
                name="bag",
                dim=8,
                capacity=capacity,
                pooling="mean",
                optimizer=OPTIMIZERS[optimizer],
            ),
        ]
    )


def compiled_text(coll: jde.Tables) -> str:
    step = jax.jit(functools.partial(train_step, coll), donate_argnums=0)
    return step.lower(coll.init(0), random_batch()).compile().as_text()


def test_a_replayed_step_gives_the_same_bits(platform):
    coll, tables = collection(), []
    for options in (None, jde.compiler_options()):
        step = jax.jit(functools.partial(train_step, coll), compiler_options=options)
        state = coll.init(0)
        for _ in range(3):
            state = step(state, random_batch())
        tables.append({name: export(coll, state, name) for name in coll.tables})
    for name in coll.tables:
        assert_same_rows(*(table[name] for table in tables))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_is_in_place(platform, optimizer):
    coll = collection(optimizer)
    step = jax.jit(functools.partial(train_step, coll), donate_argnums=0)
    assert_in_place(step, coll.init(0), random_batch())


def test_a_scan_is_in_place(platform):
    coll = collection()

    def run(state, ids):
        def body(state, ids):
            return train_step(coll, state, ids), None

        return jax.lax.scan(body, state, ids)[0]

    ids = jax.tree.map(
        lambda *x: jnp.stack(x), *(random_batch(seed) for seed in range(4))
    )
    assert_in_place(jax.jit(run, donate_argnums=0), coll.init(0), ids)


def test_find_leaves_tables_to_the_caller(platform):
    coll = collection()
    state, ids = coll.init(0), random_batch()
    compiled = jax.jit(lambda state, ids: coll.find(state, ids)[0]).lower(state, ids)
    text = compiled.compile().as_text()
    assert not re.search(r"= \S+ copy\(", text), text


def test_find_before_a_change_is_in_place(platform):
    coll = collection()

    def run(state, ids):
        before, _, state = coll.find(state, ids)
        state = train_step(coll, state, ids)
        after, _, state = coll.find(state, ids)
        return state, before, after

    step = jax.jit(run, donate_argnums=0)
    assert_in_place(step, coll.init(0), random_batch())
    state, before, after = step(coll.init(0), random_batch())
    initial, _, _ = coll.find(coll.init(0), random_batch())
    stored, _, _ = coll.find(state, random_batch())
    jax.tree.map(np.testing.assert_array_equal, before, initial)
    jax.tree.map(np.testing.assert_array_equal, after, stored)


def test_find_and_erase_and_insert_are_in_place(platform):
    coll = collection()
    ids = random_batch()
    assert_in_place(jax.jit(coll.find, donate_argnums=0), coll.init(0), ids)
    some = {"t": ids["a"]}
    assert_in_place(jax.jit(coll.erase, donate_argnums=0), coll.init(0), some)
    rows = {"t": jnp.zeros((32, 16))}
    assert_in_place(jax.jit(coll.insert, donate_argnums=0), coll.init(0), some, rows)


def test_buffers_are_the_same_before_and_after(platform):
    coll = collection()
    step = jax.jit(functools.partial(train_step, coll), donate_argnums=0)
    state = step(coll.init(0), random_batch())
    before = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state)]
    state = step(state, random_batch(1))
    after = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state)]
    assert before == after


def test_no_recompilation_over_a_hundred_steps(platform, caplog):
    coll = collection()
    step = jax.jit(functools.partial(train_step, coll), donate_argnums=0)
    state = step(coll.init(0), random_batch())
    ids = [random_batch(seed) for seed in range(100)]
    with jax.log_compiles(), caplog.at_level(logging.DEBUG, logger="jax"):
        jax.jit(lambda x: x + 1)(0)
        assert "Compiling" in caplog.text  # this is how a compilation would show
        caplog.clear()
        for one in ids:
            state = step(state, one)
    assert "Compiling" not in caplog.text
    assert step._cache_size() == 1
    assert coll.stats(state)["t/step"] == 101


def test_hyper_parameters_are_traced(platform):
    coll = collection("sgd")
    _, residual, state = coll.lookup(coll.init(0), random_batch())
    d_rows = {"a": jnp.ones((32, 16)), "b": jnp.ones((32, 2, 16))}
    d_rows["bag"] = jnp.ones((32, 8))

    @functools.partial(jax.jit, donate_argnums=0)
    def apply(state, rate):
        return coll.apply_gradients(state, residual, d_rows, learning_rate=rate)

    for rate in (0.1, 0.2, 0.3):
        state = apply(state, jnp.float32(rate))
    assert apply._cache_size() == 1


def test_no_host_transfer_in_a_step(platform):
    text = compiled_text(collection())
    for forbidden in ("infeed", "outfeed", "send(", "recv(", "callback"):
        assert forbidden not in text


def tables_of(names: Iterable[str], share_arrays: bool, **options) -> jde.Tables:
    configs = [jde.TableConfig(n, dim=8, capacity=1000, **options) for n in names]
    return jde.Tables(configs, share_arrays=share_arrays)


def three_tables(share_arrays: bool, **options) -> jde.Tables:
    return tables_of("xyz", share_arrays, **options)


def evaluation(coll: jde.Tables, num_ids: int = 4):
    ids = dict.fromkeys(coll.features, jde.ids(np.arange(num_ids)))
    return jax.jit(lambda state, ids: coll.find(state, ids)[0]), ids


def training(coll: jde.Tables, num_ids: int = 4):
    ids = dict.fromkeys(coll.features, jde.ids(np.arange(num_ids)))
    d_rows = dict.fromkeys(coll.features, jnp.ones((num_ids, 8)))

    def step(state, ids, d_rows):
        rows, residual, state = coll.lookup(state, ids)
        return coll.apply_gradients(state, residual, d_rows), rows

    return jax.jit(step, donate_argnums=0), ids, d_rows


# Arrays that go in and out are what a call costs the host: of each table that has its
# own, and of each feature.
TAKEN = {
    "evaluation": (evaluation, {}, (2, 1), (0, 1)),
    "evaluation, random rows": (
        evaluation,
        {"eval_initializer": jde.initializers.normal()},
        (3, 1),
        (0, 1),
    ),
    "sgd": (training, {"optimizer": OPTIMIZERS["sgd"]}, (3, 2), (3, 1)),
    "adam": (training, {"optimizer": jde.optim.adam(0.1)}, (5, 2), (5, 1)),
    "customized scores": (training, {"score_strategy": "customized"}, (3, 2), (3, 1)),
}


@pytest.mark.parametrize("share_arrays", [False, True])
@pytest.mark.parametrize("work", TAKEN)
def test_a_step_takes_and_returns_no_array_too_many(platform, work, share_arrays):
    make, options, (of_table, of_feature), (new, rows) = TAKEN[work]
    coll = three_tables(share_arrays, **options)
    step, *batch = make(coll)
    state = coll.init(0)
    compiled = step.lower(state, *batch).compile()
    tables, features = len(state), len(coll.features)
    assert tables == (1 if share_arrays else 3)
    program = compiled.runtime_executable()
    taken, returned = program.get_parameter_layouts(), program.get_output_layouts()
    assert len(taken) == of_table * tables + of_feature * features
    assert len(returned) == new * tables + rows * features


@pytest.mark.parametrize("work", [evaluation, training])
def test_a_step_runs_nothing_beside_our_calls(platform, work):
    coll = three_tables(False)
    step, *batch = work(coll)
    text = step.lower(coll.init(0), *batch).compile().as_text()
    operations = set(re.findall(r" = .*? ([a-z\-]+)\(", text))
    operations -= {"parameter", "constant", "tuple", "get-tuple-element", "bitcast"}
    assert operations - {"call"} == {"custom-call"}, text  # a GPU's graphs are called


@pytest.mark.parametrize("work", [evaluation, training])
def test_to_xla_a_step_of_many_arrays_and_ids_is_work(work):
    """Below 1000 operations its CPU client keeps the thread that calls."""

    def operations(num_tables: int, num_ids: int) -> float:
        coll = tables_of([f"t{i}" for i in range(num_tables)], False)
        with jax.default_device(jax.devices("cpu")[0]):
            step, *batch = work(coll, num_ids)
            compiled = step.lower(coll.init(0), *batch).compile()
        return compiled.cost_analysis()["flops"]

    assert operations(12, 4) < 100
    assert operations(12, 2048) >= 1000
    # Few arrays are handed over sooner than another thread wakes up.
    assert operations(1, 2048) < 100
    # Beyond 8 MB of rows it is better to wait than to have those of many steps at once.
    assert operations(12, 50_000) < 100


def test_one_call_of_each_operation_for_all_tables(platform):
    targets = re.findall(
        r'custom_call_target="(dynemb_\w+)"', compiled_text(collection())
    )
    assert sorted(targets) == ["dynemb_lookup", "dynemb_update"]
