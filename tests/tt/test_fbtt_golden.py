# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""FBTT-Embedding's own numbers: outputs, dense gradients, fused SGD and Adagrad."""

import dataclasses
import functools
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde

FOLDER = pathlib.Path(__file__).parent.parent / "golden"
FILE: dict[str, Any] = json.loads((FOLDER / "fbtt.json").read_text())
OPTIMIZERS = {"dense": None, "sgd": jde.optim.sgd, "adagrad": jde.optim.adagrad}


@functools.cache
def jitted(name: str):
    return jax.jit(getattr(jde.tt, name), static_argnums=0)


@functools.cache
def arrays() -> dict[str, np.ndarray]:
    with np.load(FOLDER / "fbtt.npz") as file:
        return dict(file)


def config_of(case: Any) -> jde.TTConfig:
    make = OPTIMIZERS[case["mode"]]
    options = {"eps": case["eps"]} if case["mode"] == "adagrad" else {}
    return jde.TTConfig(
        "t",
        case["dim"],
        case["num_embeddings"],
        tuple(case["tt_ranks"]),
        rows_shape=case["tt_p_shapes"],
        dim_shape=case["tt_q_shapes"],
        pooling="sum",
        compute_dtype="float32",
        optimizer=make and make(case["learning_rate"], **options),
    )


def cores_of(case: Any, config: jde.TTConfig) -> tuple[jax.Array, ...]:
    return tuple(
        jnp.asarray(arrays()[f"{case['name']}.core{t}"].reshape(shape))
        for t, shape in enumerate(config.core_shapes)
    )


@pytest.mark.parametrize("case", FILE["cases"], ids=lambda case: case["name"])
def test_a_step_of_fbtt(platform, case):
    def array(field: str) -> np.ndarray:
        return arrays()[f"{case['name']}.{field}"]

    config = config_of(case)
    shapes = config.core_shapes
    state = dataclasses.replace(jde.tt.init(config, 0), cores=cores_of(case, config))
    ids = jde.Jagged(jde.ids(array("ids")), np.diff(array("offsets")))
    rows, residual, state = jitted("lookup")(config, state, ids)
    np.testing.assert_allclose(rows, array("output"), rtol=1e-5, atol=1e-6)
    if config.optimizer is None:
        found = jitted("core_gradients")(config, state, residual, array("d_output"))
        name = "d_core"
    else:
        found = jitted("apply_gradients")(
            config, state, residual, array("d_output")
        ).cores
        name = "core_after"
    for t, mine in enumerate(found):
        theirs = array(f"{name}{t}").reshape(shapes[t])
        scale = np.abs(theirs).max()
        np.testing.assert_allclose(mine / scale, theirs / scale, atol=2e-5)


@pytest.mark.parametrize(
    "case", [c for c in FILE["cases"] if c["mode"] == "dense"], ids=lambda c: c["name"]
)
def test_the_first_rows_of_fbtts_full_weight(platform, case):
    """The file has them of five of the seven shapes."""
    wanted = arrays().get(f"{case['name']}.full_weight_rows")
    if wanted is None:
        pytest.skip("FBTT gave no full weight of these shapes")
    config = config_of(case)
    chunk = next(jde.tt.full_weight(config, cores_of(case, config), len(wanted)))
    np.testing.assert_allclose(chunk, wanted, rtol=1e-5, atol=1e-6)


def test_suggested_shapes_of_fbtt():
    for case in FILE["suggested_tt_shapes"]:
        rows, columns = jde.tt.suggested_shapes(
            case["n"], case["n"], case["d"], compat="fbtt"
        )
        assert case["shape"] == list(rows if case["allow_round_up"] else columns)
