# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables without updates, sums of rows with their keys, clipped output gradients."""

import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from support import Twins, export, gradients, stat


@pytest.mark.parametrize(
    "options",
    [{"optimizer": jde.optim.none()}, {"trainable": False}],
    ids=["none", "trainable"],
)
def test_an_update_leaves_the_table_as_it_is(platform, options):
    frozen = jde.TableConfig("t", 8, 256, **options)
    twins = Twins(frozen, jde.TableConfig("u", 8, 256, optimizer=jde.optim.lion(0.1)))
    before, residuals = twins.lookup({"t": [1, 2], "u": [1, 2]})
    twins.apply(residuals, {n: gradients((2, 8), 1) for n in "tu"})
    after, _ = twins.find({"t": [1, 2], "u": [1, 2]})
    np.testing.assert_array_equal(before["t"], after["t"])
    assert (before["u"] != after["u"]).any()
    assert (stat(twins, "t/step"), stat(twins, "u/step")) == (0, 1)
    twins.check()


def test_reduced_rows_come_with_their_keys(platform):
    coll = jde.Tables([jde.TableConfig("t", 8, 256, optimizer=jde.optim.none())])
    ids = np.array([5, -1, 6, 5, -(2**40)])
    _, residual, state = coll.lookup(coll.init(0), {"t": jde.ids(ids)})
    d = gradients((5, 8), 9)
    reduced, state = coll.reduce_gradients(state, residual, {"t": jnp.asarray(d)})
    words = np.asarray(reduced["t"].keys).astype(np.uint64)
    keys = (words[:, 0] | words[:, 1] << np.uint64(32)).view(np.int64)
    sums = {5: d[0] + d[3], 6: d[2], -(2**40): d[4]}
    live = np.asarray(reduced["t"].slots) >= 0
    assert sorted(keys[live].tolist()) == sorted(sums)
    assert (keys[~live] == -1).all()
    for key, row in zip(keys[live], np.asarray(reduced["t"].grads)[live], strict=True):
        np.testing.assert_allclose(row, sums[int(key)], rtol=1e-6)


@pytest.mark.parametrize("pooling", [None, "sum", "mean"])
def test_output_gradients_are_clipped_before_they_are_summed(platform, pooling):
    table = jde.TableConfig(
        "t", 8, 256, pooling=pooling, max_gradient=0.25, optimizer=jde.optim.sgd(0.5)
    )
    twins = Twins(table)
    ids = np.array([[1, 2], [2, 2], [3, -1]])
    weights = None if pooling is None else {"t": np.full((3, 2), 1.5, "f")}
    rows, residuals = twins.lookup({"t": ids}, weights)
    d_rows = {"t": 4 * gradients(rows["t"].shape, 1)}
    if pooling is not None:
        twins.weight_gradients(residuals, d_rows)
    twins.apply(residuals, d_rows)
    twins.check()
    if pooling is None:  # id 3 occurs once
        step = export(twins.coll, twins.state, "t")[3].values - rows["t"][2, 0]
        assert np.abs(step).max() <= 0.125 + 1e-6


@pytest.mark.parametrize("limit", [0, -1.0, float("nan"), True])
def test_a_limit_is_above_zero(limit):
    with pytest.raises(ValueError, match="max_gradient must be a number above 0"):
        jde.TableConfig("t", 8, 256, max_gradient=limit)


@pytest.mark.parametrize("name", ["adafactor", "muon", "madgrad", "adamw"])
def test_what_tables_do_not_have_is_named_with_what_they_have(name):
    with pytest.raises(AttributeError, match=r"jde\.optim\..* Use jde\.optim|write"):
        getattr(jde.optim, name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: jde.optim.momentum(0.1, momentum=1.0),
            r"momentum must lie in \[0, 1\)",
        ),
        (lambda: jde.optim.ftrl(0.1, l1=-1.0), "l1 must not be negative"),
        (lambda: jde.optim.ftrl(0.1, lr_power=0.5), "lr_power must not be positive"),
        (lambda: jde.optim.ftrl(0.1, z_init="warm"), "z_init must be one of"),
        (lambda: jde.optim.adam(0.1, bias_correction="no"), "bias_correction must be"),
        (
            lambda: jde.optim.rowwise_adagrad(0.1, weight_decay_mode="L2"),
            "weight_decay_mode must be one of",
        ),
        (lambda: jde.optim.lion(0.1, b1=float("inf")), "b1 must be finite"),
        (lambda: jde.optim.rowwise_rmsprop(0.1, eps=-1), "eps must not be negative"),
        (
            lambda: jde.optim.rowwise_rmsprop(0.1, ar_alpha=0.1, min_shrinkage=2.0),
            "min_shrinkage is the least factor of a row, at most 1, not 2.0",
        ),
    ],
)
def test_numbers_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_it_is_no_optax_transformation():
    with pytest.raises(AttributeError, match="is no optax transformation"):
        _ = jde.optim.lion(0.1).update
    with pytest.raises(TypeError, match="is no optax transformation"):
        iter(jde.optim.ftrl(0.1))
