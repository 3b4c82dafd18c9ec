# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Remembers where the arrays of a pickled module were: JAX pickles only numbers."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

from jax_dynemb._src.nnx.fast_path import iter_variables
from jax_dynemb._src.table import packed, unpacked


def places_of(module: Any) -> bytes:
    """Pickles the shardings of the arrays of a module."""
    leaves = jax.tree.leaves([v.get_raw_value() for v in iter_variables(module)])
    return packed([_place(leaf) for leaf in leaves])


def put_back(module: Any, places: bytes) -> None:
    """Moves arrays to where they were when pickled; ValueError without a device."""
    shardings = iter(unpacked(places))
    for variable in iter_variables(module):
        moved = jax.tree.map(
            lambda leaf: _moved(leaf, next(shardings)), variable.get_raw_value()
        )
        variable.set_raw_value(moved)


def _place(leaf: Any) -> Any:
    """Returns the sharding; None of an array where JAX puts one by itself."""
    sharding = getattr(leaf, "sharding", None)
    if not isinstance(sharding, SingleDeviceSharding):
        return sharding
    (device,) = sharding.device_set
    kind = sharding.memory_kind
    usual = kind is None or kind == device.default_memory().kind
    return None if usual and not leaf.committed else sharding


def _moved(leaf: Any, sharding: Any) -> Any:
    return leaf if sharding is None else jax.device_put(leaf, sharding)
