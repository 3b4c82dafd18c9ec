# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the law of a row that a config's ``init_fn`` stands for.

TorchRec calls it with the whole weight. Here rows come one by one, so a function that
fills an array cannot be called. But some of ``torch.nn.init`` draw each number by
itself. They are known by their names, without torch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax

from jax_dynemb._src import initializers

_TORCH = "torch.nn.init"


def initializer_of(table: str, given: Any, rows: int, dim: int) -> Any:
    """Returns the initializer that has the law of an ``init_fn``.

    Args:
      table: its name, for the sentence of an error.
      given: an initializer; jax.nn.initializers zeros or ones; or a function of
        ``torch.nn.init``, maybe a ``functools.partial`` with numbers by name.
      rows: of the weight, which some laws of torch divide by.
      dim: its columns.

    Raises:
      TypeError: its law is not known.
    """
    if isinstance(given, initializers.Initializer):
        return given
    if given is jax.nn.initializers.zeros:
        return initializers.zeros()
    if given is jax.nn.initializers.ones:
        return initializers.constant(1.0)
    function, numbers = _parts(given)
    name = getattr(function, "__name__", "")
    if getattr(function, "__module__", "") == _TORCH and name in _LAWS:
        return _law(table, name, numbers, rows, dim)
    raise TypeError(
        f"table '{table}': init_fn {given!r} fills a tensor, but rows here are a "
        "function of their key, whenever they are inserted: use jde.initializers "
        "(uniform, normal, truncated_normal, constant), one of torch.nn.init "
        f"({', '.join(_LAWS)}), or load rows with insert."
    )


def _parts(given: Any) -> tuple[Any, Mapping[str, Any]]:
    """A function and the numbers bound to it by name."""
    if not isinstance(given, functools.partial) or given.args:
        return given, {}
    return given.func, given.keywords


def _law(table: str, name: str, numbers: Mapping[str, Any], rows: int, dim: int) -> Any:
    numbers = {key: x for key, x in numbers.items() if x is not None}
    try:
        return _LAWS[name](rows, dim, **numbers)
    except (TypeError, KeyError) as error:
        raise TypeError(
            f"table '{table}': torch.nn.init.{name} with {dict(numbers)} has no law "
            f"that is known here ({error}): write one of jde.initializers. A generator "
            "is none of its numbers, since rows follow from the table's seed."
        ) from error


def _uniform(rows: int, dim: int, a: float = 0.0, b: float = 1.0) -> Any:
    return initializers.uniform(a, b)


def _normal(rows: int, dim: int, mean: float = 0.0, std: float = 1.0) -> Any:
    return initializers.normal(std, mean) if std else initializers.constant(mean)


def _trunc_normal(
    rows: int,
    dim: int,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
) -> Any:
    return initializers.truncated_normal(std, mean, a, b)


def _constant(rows: int, dim: int, val: float) -> Any:
    return initializers.constant(val)


def _ones(rows: int, dim: int) -> Any:
    return initializers.constant(1.0)


def _zeros(rows: int, dim: int) -> Any:
    return initializers.zeros()


def _xavier(law: Callable, rows: int, dim: int, gain: float = 1.0) -> Any:
    return law(gain * math.sqrt(2.0 / (rows + dim)))


def _kaiming(
    law: Callable,
    rows: int,
    dim: int,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
) -> Any:
    gains = {
        "linear": 1.0,
        "sigmoid": 1.0,
        "tanh": 5.0 / 3.0,
        "relu": math.sqrt(2.0),
        "leaky_relu": math.sqrt(2.0 / (1.0 + a * a)),
        "selu": 0.75,
    }
    fan = {"fan_in": dim, "fan_out": rows}[mode]
    return law(gains[nonlinearity] / math.sqrt(fan))


def _even(std: float) -> Any:
    """Returns the even law around 0 that has a standard deviation."""
    bound = math.sqrt(3.0) * std
    return initializers.uniform(-bound, bound)


_LAWS: dict[str, Callable] = {
    "uniform_": _uniform,
    "normal_": _normal,
    "trunc_normal_": _trunc_normal,
    "constant_": _constant,
    "ones_": _ones,
    "zeros_": _zeros,
    "xavier_uniform_": functools.partial(_xavier, _even),
    "xavier_normal_": functools.partial(_xavier, initializers.normal),
    "kaiming_uniform_": functools.partial(_kaiming, _even),
    "kaiming_normal_": functools.partial(_kaiming, initializers.normal),
}
