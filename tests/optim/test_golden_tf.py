# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""FTRL, Adagrad, momentum and RMSprop against numbers of TensorFlow's kernels."""

import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from support import export

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
ARRAYS = np.load(GOLDEN / "tf.npz")
# RMSprop with momentum and proximal Adagrad are no optimizers of tables.
CASES = [
    case
    for case in json.loads((GOLDEN / "tf.json").read_text())["cases"]
    if not case["name"].startswith(("rmsprop_momentum", "proximal"))
]
STATES = {
    "ftrl": {"linear": "z", "accum": "n"},
    "adagrad": {"accum": "sum_of_squares"},
    "momentum": {"momentum": "trace"},
    "keras_momentum": {},  # its velocity is the trace times the learning rate
    "rmsprop": {"ms": "nu"},
}


def optimizer_of(case: dict[str, Any]) -> Any:
    hyper, first = case["hyper"], case["initial"]
    rate, optim = hyper["lr"], jde.optim
    if case["kernel"] == "ftrl":
        return optim.ftrl(
            rate,
            l1=hyper["l1"],
            l2=2 * hyper["l2"],
            l2_shrinkage=hyper["l2_shrinkage"],
            lr_power=hyper["lr_power"],
            initial_accumulator_value=first["accum"],
        )
    if case["kernel"] == "adagrad":
        return optim.adagrad(rate, hyper["epsilon"], first["accum"])
    if case["kernel"] == "rmsprop":
        return optim.rmsprop(rate, hyper["rho"], hyper["epsilon"], eps_in_sqrt=True)
    return optim.momentum(rate, hyper["momentum"], nesterov=hyper["nesterov"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_six_steps(platform, case):
    def array(name: str) -> np.ndarray:
        return ARRAYS[f"{case['name']}.{name}"]

    table = jde.TableConfig("t", case["dim"], 256, optimizer=optimizer_of(case))
    coll = jde.Tables([table])
    keys = jde.ids(np.arange(case["rows"]))
    state = coll.insert(coll.init(0), {"t": keys}, {"t": jnp.asarray(array("w0"))})
    lookup, apply = jax.jit(coll.lookup), jax.jit(coll.apply_gradients)
    for step in range(case["steps"]):
        ids = {"t": jde.ids(array(f"ids{step}").astype(np.int64))}
        _, residual, state = lookup(state, ids)
        state = apply(state, residual, {"t": jnp.asarray(array(f"g{step}"))})
    tolerance = {"rtol": 5e-5, "atol": 5e-6}
    for key, row in export(coll, state, "t").items():
        np.testing.assert_allclose(row.values, array("w")[key], **tolerance)
        for theirs, ours in STATES[case["kernel"]].items():
            want = array(theirs)[key]
            np.testing.assert_allclose(row.state[ours], want, **tolerance)
