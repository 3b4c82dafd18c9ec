# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tells apart the kinds of objects that a Module consists of, for comparisons."""

from __future__ import annotations

import enum
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.core import Tracer
from jax.tree_util import default_registry

BY_VALUE = {int, float, bool, complex, str, bytes, type(None)}


class Part(enum.Enum):
    """Says how an object is compared."""

    VALUE = enum.auto()  # numbers and strings
    MODULE = enum.auto()
    VARIABLE = enum.auto()
    DICT = enum.auto()
    SEQUENCE = enum.auto()
    SET = enum.auto()
    NODE = enum.auto()  # another node of pytrees
    LEAF = enum.auto()  # by identity
    LOOSE_ARRAY = enum.auto()  # an array that no Variable wraps


def part_of(x: Any) -> Part:
    """Returns what an object is; of all but tracers, its type tells."""
    if isinstance(x, Tracer):
        return Part.LOOSE_ARRAY if isinstance(x, jax.Array) else Part.LEAF
    if type(x) in BY_VALUE:
        return Part.VALUE
    for base, part in _BY_BASE.items():
        if issubclass(type(x), base):
            return part
    if default_registry.flatten_one_level(x) is None:
        return Part.LEAF
    return Part.NODE


_BY_BASE: dict[type, Part] = {
    nnx.Pytree: Part.MODULE,
    nnx.Variable: Part.VARIABLE,
    dict: Part.DICT,
    tuple: Part.SEQUENCE,
    list: Part.SEQUENCE,
    set: Part.SET,
    np.ndarray: Part.LOOSE_ARRAY,
    jax.Array: Part.LOOSE_ARRAY,
}
