# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Functions of torch.nn.init have a law here; torch itself is not needed."""

import functools
import math
import types

import jax
import pytest

import jax_dynemb as jde

T = jde.torchrec
INIT = jde.initializers
ROWS, DIM = 2000, 16


def torch_function(name):
    """A function with the names of torch's; calling it is a mistake."""

    def fill(tensor, **numbers):
        raise AssertionError("nothing is filled")

    kind = types.FunctionType(fill.__code__, {}, name)
    kind.__module__ = "torch.nn.init"
    return kind


def made(name, **numbers):
    given = torch_function(name)
    given = functools.partial(given, **numbers) if numbers else given
    config = T.EmbeddingConfig(ROWS, DIM, "t", init_fn=given)
    return config.to_table().initializer


def test_numbers_of_each_law_and_their_defaults():
    assert made("normal_", mean=0.5, std=1.5) == INIT.normal(1.5, 0.5)
    assert made("normal_") == INIT.normal(1.0)
    assert made("normal_", std=0) == INIT.zeros()
    assert made("uniform_", a=-0.25, b=0.5) == INIT.uniform(-0.25, 0.5)
    assert made("uniform_") == INIT.uniform(0.0, 1.0)
    assert made("trunc_normal_", std=0.5) == INIT.truncated_normal(0.5, 0, -2, 2)
    assert made("trunc_normal_", mean=1, std=2, a=-1, b=4) == (
        INIT.truncated_normal(2, 1, -1, 4)
    )
    assert made("constant_", val=3) == INIT.constant(3)
    assert made("ones_") == INIT.constant(1) and made("zeros_") == INIT.zeros()


@pytest.mark.parametrize(
    ("name", "numbers", "deviation"),
    [
        ("xavier_{}_", {}, math.sqrt(2 / (ROWS + DIM))),
        ("xavier_{}_", {"gain": 3.0}, 3 * math.sqrt(2 / (ROWS + DIM))),
        ("kaiming_{}_", {}, math.sqrt(2 / DIM)),
        ("kaiming_{}_", {"a": math.sqrt(5)}, math.sqrt(2 / 6 / DIM)),
        (
            "kaiming_{}_",
            {"mode": "fan_out", "nonlinearity": "tanh"},
            5 / 3 / math.sqrt(ROWS),
        ),
        ("kaiming_{}_", {"nonlinearity": "linear"}, math.sqrt(1 / DIM)),
    ],
)
def test_laws_that_divide_by_sizes(name, numbers, deviation):
    normal = made(name.format("normal"), **numbers)
    assert normal.kernel_parameters()[:2] == pytest.approx((0.0, deviation))
    uniform = made(name.format("uniform"), **numbers)
    assert uniform.hi == -uniform.lo == pytest.approx(deviation * math.sqrt(3))


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("orthogonal_", {}),
        ("constant_", {}),
        ("normal_", {"generator": object()}),
        ("normal_", {"stddev": 1.0}),
        ("kaiming_normal_", {"mode": "fan_avg"}),
        ("kaiming_normal_", {"nonlinearity": "gelu"}),
    ],
)
def test_what_has_no_law_is_refused_with_what_to_write(name, numbers):
    with pytest.raises(TypeError, match=r"table 't'.*jde.initializers"):
        made(name, **numbers)


def test_other_functions_are_refused_and_those_of_jax_taken_where_they_map():
    def of(given):
        return T.EmbeddingConfig(8, 4, "t", init_fn=given).to_table().initializer

    assert of(jax.nn.initializers.ones) == INIT.constant(1.0)
    assert of(jax.nn.initializers.zeros) == INIT.zeros()
    positional = functools.partial(torch_function("normal_"), 1.0)
    for given in (lambda tensor: tensor, jax.nn.initializers.normal(), positional):
        with pytest.raises(TypeError, match="function of their key"):
            of(given)
