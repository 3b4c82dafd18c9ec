# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which features of a KeyedJaggedTensor each table of a collection looks up."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import Routed
from jax_dynemb._src.scores import is_pair
from jax_dynemb._src.torchrec.arrays import is_pairs
from jax_dynemb._src.torchrec.jagged_tensor import JaggedTensor
from jax_dynemb._src.torchrec.keyed_jagged_tensor import KeyedJaggedTensor
from jax_dynemb._src.tt import TTConfig

Features = KeyedJaggedTensor | Mapping[str, Any]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RoutedFeatures:
    """Holds a batch that ``route`` of a collection has sent ahead; a pytree.

    Attributes:
      features: as given.
      routed: what the core sent.
    """

    features: Any
    routed: Routed


class Dropped(nnx.Variable[jax.Array]):
    """Entries that had no room in a KeyedJaggedTensor made under jit; uint32[F]."""


@dataclasses.dataclass(frozen=True)
class Route:
    """One output: a feature of one table.

    Attributes:
      feature: the key in the input.
      alias: the name in the output and of the core's feature: ``feature``, or
        ``feature@table`` where several tables have it.
    """

    feature: str
    alias: str
    table: str


def routed(
    tables: Sequence[TableConfig | TTConfig],
) -> tuple[tuple[Route, ...], tuple[TableConfig | TTConfig, ...]]:
    """Tables in order, their features in order; each of its own name in the core."""
    times = collections.Counter(f for table in tables for f in table.feature_names)
    routes, renamed = [], []
    for table in tables:
        own = [
            Route(f, f if times[f] == 1 else f"{f}@{table.name}", table.name)
            for f in table.feature_names
        ]
        routes += own
        names = tuple(route.alias for route in own)
        renamed.append(dataclasses.replace(table, feature_names=names))
    return tuple(routes), tuple(renamed)


def inputs_of(
    routes: Sequence[Route], features: Features
) -> tuple[dict[str, Any], dict[str, JaggedTensor]]:
    """Returns ids by alias as the core takes them, and bags by key where there are."""
    if isinstance(features, KeyedJaggedTensor):
        bags = {route.feature: features[route.feature] for route in routes}
        ids = {key: jt.jagged() for key, jt in bags.items()}
        return {route.alias: ids[route.feature] for route in routes}, bags
    if not isinstance(features, Mapping):
        raise TypeError(
            f"features are {type(features).__name__}: give a KeyedJaggedTensor, or a "
            "dict of ids by feature."
        )
    if missing := [r.feature for r in routes if r.feature not in features]:
        raise KeyError(f"no feature {missing[0]!r} in the dict: {sorted(features)}")
    given = {r.alias: features[r.feature] for r in routes}
    bags = {k: jt for k, jt in features.items() if isinstance(jt, JaggedTensor)}
    return {
        alias: jt.jagged() if isinstance(jt, JaggedTensor) else jt
        for alias, jt in given.items()
    }, bags


def numbers_of(
    routes: Sequence[Route], numbers: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Numbers by table or feature, as the core names them.

    One for a whole table stays under its name, even where a feature has it too.
    """
    if not numbers:
        return None
    tables = {route.table for route in routes}
    result: dict[str, Any] = {}
    for name, x in numbers.items():
        aliases = [route.alias for route in routes if route.feature == name]
        of_table = name in tables and (np.shape(x) == () or is_pair(x))
        result |= dict.fromkeys([name] if of_table or not aliases else aliases, x)
    return result


def split_routed(features: Any) -> tuple[Any, Routed | None]:
    """Returns the features of a batch, and what was sent of it ahead, if anything."""
    if isinstance(features, RoutedFeatures):
        return features.features, features.routed
    return features, None


def dropped_of(routes: Sequence[Route], features: Features) -> Any:
    """Entries without room for each route; None where all of them are known to fit."""
    if not isinstance(features, KeyedJaggedTensor) or features.dropped is None:
        return None
    place = features.index_per_key()
    chosen = np.array([place[route.feature] for route in routes], np.int32)
    return jnp.asarray(features.dropped)[chosen]


def ids_as_weights(jt: JaggedTensor) -> Any:
    """The ids of a feature, for ``need_indices``; pairs of words on the device."""
    ids = jt._values
    return ids if is_pairs(ids) else jnp.asarray(ids)
