# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers that one call of apply_gradients gives: used, or refused by name."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from support import gradients

OPTIM = jde.optim
DIM = 32  # four columns a device where a table is column-wise
IDS = np.arange(8)


def rows_after(optimizer: Any, placement: Any = None, sharding="row_wise", **given):
    """The rows of two tables after an update that is given numbers for one."""
    tables = [
        jde.TableConfig(name, DIM, 1024, optimizer=optimizer, sharding=sharding)
        for name in "ab"
    ]
    coll = jde.Tables(tables, **(placement or {}))
    ids = dict.fromkeys("ab", jde.ids(IDS))
    _, residual, state = coll.lookup(coll.init(0), ids)
    d_rows = dict.fromkeys("ab", jnp.asarray(gradients((8, DIM), 1)))
    state = coll.apply_gradients(state, residual, d_rows, **given)
    found = coll.find(state, ids)[0]
    return np.stack([found[name] for name in "ab"])


def of_eight() -> dict[str, Any]:
    return {"mesh": mesh_of(8), "axis": "data"}


@pytest.mark.parametrize("name", ["sgd", "adagrad", "rowwise_adagrad", "adam"])
def test_a_limit_that_no_loop_would_use_is_refused(name):
    given = {"a": {"clip_row_norm": 0.5}}
    with pytest.raises(ValueError, match=r"clips no rows.*clip_row_norm=1e30"):
        rows_after(getattr(OPTIM, name)(0.1), hyper=given)
    # An optimizer made with a limit, as the message says, takes the limit of a call.
    make = getattr(OPTIM, name)
    got = rows_after(make(0.1, clip_row_norm=1e30), hyper=given)
    np.testing.assert_array_equal(got[0], rows_after(make(0.1, clip_row_norm=0.5))[0])


@pytest.mark.parametrize("name", ["sgd", "adagrad", "rowwise_adagrad"])
def test_a_number_that_the_formula_does_not_have_is_refused(name):
    with pytest.raises(ValueError, match="'weight_decay'.* are not hyper-parameters"):
        rows_after(getattr(OPTIM, name)(0.1), hyper={"a": {"weight_decay": 0.5}})


@pytest.mark.parametrize("sharding", ["row_wise", "table_wise", "replicated"])
def test_a_mesh_clips_and_refuses_as_one_device_does(sharding):
    given = {"a": {"clip_row_norm": 0.5}}
    one = rows_after(OPTIM.momentum(0.1), sharding=sharding, hyper=given)
    eight = rows_after(OPTIM.momentum(0.1), of_eight(), sharding, hyper=given)
    np.testing.assert_allclose(eight, one, rtol=1e-6)
    with pytest.raises(ValueError, match=r"\['nope'\] are not hyper-parameters"):
        rows_after(OPTIM.lion(0.1), of_eight(), sharding, hyper={"a": {"nope": 1}})


@pytest.mark.parametrize(
    "optimizer, given, message",
    [
        (OPTIM.lion(0.1), {"clip_row_norm": 0.5}, "about the norm of one"),
        (OPTIM.rowwise_adagrad(0.1), {"b1": 0.5}, "are not hyper-parameters"),
    ],
)
def test_a_column_wise_table_refuses_what_needs_whole_rows(optimizer, given, message):
    with pytest.raises(ValueError, match=message):
        rows_after(optimizer, of_eight(), "column_wise", hyper={"a": given})


def test_a_table_without_an_optimizer_takes_the_rate_of_all():
    for given in (0.5, {"a": 0.5}):
        one, eight = (
            rows_after(OPTIM.none(), place, "table_wise", learning_rate=given)
            for place in (None, of_eight())
        )
        np.testing.assert_array_equal(eight, one)


@pytest.mark.parametrize("given", [{"a": 0.1}, [0.1], 0.1])
def test_what_is_no_dict_of_dicts(given):
    with pytest.raises(TypeError, match="hyper.* must be a dict by"):
        rows_after(OPTIM.lion(0.1), hyper=given)


def test_a_counter_takes_no_negative_bound():
    counter = OPTIM.Counter(step="sgd")
    optimizer = OPTIM.rowwise_adagrad(0.1, counter=counter)
    with pytest.raises(ValueError, match="bound must not be negative"):
        rows_after(optimizer, hyper={"a": {"bound": -1.0}})


@pytest.mark.parametrize("given", [None, "x", np.ones(2), jnp.ones(2)])
@pytest.mark.parametrize("make", [OPTIM.sgd, OPTIM.lion])
def test_a_schedule_gives_one_number(make, given):
    with pytest.raises(TypeError, match="schedule of its learning rate must give one"):
        rows_after(make(lambda _: given))


@pytest.mark.parametrize("given", [1, np.float64(1), jnp.bfloat16(1), jnp.float16(1)])
def test_a_schedule_gives_any_kind_of_number(given):
    got = rows_after(OPTIM.lion(lambda _: given))
    np.testing.assert_array_equal(got, rows_after(OPTIM.lion(1.0)))
