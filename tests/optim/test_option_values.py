# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Options of optimizers and their tables: every kind of number, and what is none."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde

OPTIM = jde.optim
NUMBERS = [np.float32(0.5), np.float64(0.5), np.array(0.5), jnp.float32(0.5)]
WITH_NUMBERS = {
    "adagrad": lambda x: OPTIM.adagrad(x, initial_accumulator_value=x, clip_row_norm=x),
    "ftrl": lambda x: OPTIM.ftrl(x, initial_accumulator_value=x, l1=x),
    "rmsprop": lambda x: OPTIM.rmsprop(x, initial_scale=x),
    "max_norm": lambda x: OPTIM.rowwise_adagrad(
        x, initial_accumulator_value=x, max_norm=x
    ),
    "cow_clip": lambda x: OPTIM.rowwise_adagrad(x, cow_clip=OPTIM.CowClip(x, x, x)),
    "counter": lambda x: OPTIM.rowwise_adagrad(
        x, counter=OPTIM.Counter(x, bound=x, threshold=x, max_count=x)
    ),
    "adam": lambda x: OPTIM.adam(x, x, x, x, x, catch_up="decay", catch_up_floor=x),
}


def table(optimizer: Any, **options: Any) -> jde.TableConfig:
    return jde.TableConfig("t", 8, 256, optimizer=optimizer, **options)


@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_numbers_of_arrays_make_the_optimizer_of_plain_ones(name):
    plain = WITH_NUMBERS[name](0.5)
    for number in NUMBERS:
        assert WITH_NUMBERS[name](number) == plain
        assert hash(WITH_NUMBERS[name](number)) == hash(plain)
    first = [spec.initial for spec in plain.states(8).values()]
    assert json.dumps(first)


def test_a_checkpoint_takes_numbers_of_numpy(tmp_path):
    half: Any = np.float32(0.5)
    config = table(
        OPTIM.ftrl(half, initial_accumulator_value=half),
        max_gradient=half,
        trainable=np.bool_(True),
        insert=np.bool_(True),
    )
    coll = jde.Tables([config])
    state = coll.insert(coll.init(0), {"t": jde.ids([3])}, {"t": jnp.ones((1, 8))})
    jde.checkpoint.save(tmp_path, 1, {"tables": state}, tables=coll, wait=True)
    fresh = {"tables": coll.init(1)}
    again = jde.checkpoint.restore(tmp_path, fresh, tables=coll).tree["tables"]
    found, *_ = coll.find(again, {"t": jde.ids([3])})
    np.testing.assert_array_equal(found["t"], np.ones((1, 8)))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: OPTIM.sgd(0.1, clip_row_norm=x),
        lambda x: OPTIM.adam(0.1, catch_up="decay", catch_up_floor=x),
        lambda x: OPTIM.adagrad(0.1, initial_accumulator_value=x, clip_row_norm=1.0),
        lambda x: OPTIM.rowwise_adagrad(0.1, weight_decay=x),
        lambda x: OPTIM.rowwise_rmsprop(0.1, ar_alpha=x),
        lambda x: OPTIM.rmsprop(0.1, initial_scale=x),
        lambda x: OPTIM.ftrl(0.1, initial_accumulator_value=x),
        OPTIM.CowClip,
        OPTIM.Counter,
    ],
)
def test_a_traced_number_is_told_where_to_go(make):
    def traced(x):
        make(x)
        return x

    with pytest.raises(TypeError, match="is traced, but an optimizer is made once"):
        jax.jit(traced)(0.1)


def test_a_traced_flag_is_refused():
    with pytest.raises(ValueError, match="nesterov must be True or False"):
        jax.jit(lambda x: OPTIM.momentum(0.1, nesterov=x) and x)(True)


@pytest.mark.parametrize("field", ["bound", "threshold", "max_count"])
def test_a_counter_refuses_what_would_make_nans(field):
    wrong: Any = {field: -1.0}
    with pytest.raises(ValueError, match=f"Counter: {field} must not be negative"):
        OPTIM.Counter(step="sgd", **wrong)


@pytest.mark.parametrize("start", [2.5, 2**24 + 1])
def test_a_start_is_the_number_of_an_update(start):
    with pytest.raises(ValueError, match="start is the number of an update"):
        OPTIM.Counter(start=start)


def test_digits_without_end_are_no_number():
    with pytest.raises(ValueError, match="learning_rate must be finite"):
        OPTIM.sgd(10**400)


@pytest.mark.parametrize("option", ["cow_clip", "counter"])
def test_an_option_of_another_type_is_named(option):
    wrong: Any = {option: 1.0}
    with pytest.raises(TypeError, match=f"{option} must be a jde.optim.Co"):
        OPTIM.rowwise_adagrad(0.1, **wrong)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.dtype("bfloat16"), "bfloat16"])
def test_a_state_takes_a_dtype_or_its_name(dtype):
    half = table(OPTIM.adam(0.1), state_dtype={"mu": dtype}).state_dtype
    assert half == (("mu", "bfloat16"),)
    full = table(OPTIM.adam(0.1), state_dtype={"mu": jnp.float32, "nu": "float32"})
    assert full.state_dtype == table(OPTIM.adam(0.1), state_dtype=None).state_dtype


@pytest.mark.parametrize("given", [jnp.bfloat16, "bfloat16", ["mu"], 3])
def test_a_dtype_without_a_state_is_told_what_to_write(given):
    with pytest.raises(ValueError, match="write {'mu': 'bfloat16'}"):
        table(OPTIM.adam(0.1), state_dtype=given)


@pytest.mark.parametrize("limit", [1e-60, jnp.float32(0), "1"])
def test_a_limit_that_a_kernel_takes_for_0_is_refused(limit):
    with pytest.raises(ValueError, match="max_gradient must be a number above 0"):
        table(OPTIM.sgd(0.1), max_gradient=limit)
