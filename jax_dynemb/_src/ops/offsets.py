# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Where the bags of a jagged input begin, whatever their lengths are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.ops.add_to_counters import add_to_counters
from jax_dynemb._src.ops.call import Call
from jax_dynemb._src.ops.sizes import is_symbolic, largest
from jax_dynemb._src.ops.state import TableState
from jax_dynemb._src.spec import TableSpec

_MOST_FEATURES = 128  # of a call: core/args.h

Offsets = tuple[jax.Array, jax.Array]


def offsets_of_each(features: Sequence[tuple[Any, Any]]) -> list[Offsets]:
    """Adds up the lengths of several features in one call, each as ``offsets_of``.

    Args:
      features: lengths and capacity of each.
    """
    made: list[Offsets] = []
    for first in range(0, len(features), _MOST_FEATURES):
        made += _one_call(features[first : first + _MOST_FEATURES])
    return made


def _one_call(features: Sequence[tuple[Any, Any]]) -> list[Offsets]:
    # Attributes are static: of a symbolic size they have the bound.
    bounds, most = [largest(capacity) for _, capacity in features], 2**31 - 2
    capacities = [most if bound is None else min(bound, most) for bound in bounds]
    call = Call("offsets_of_features", (), capacities=np.array(capacities, np.int64))
    for given, _ in features:
        lengths = jnp.asarray(given)
        if lengths.dtype.itemsize < 4:
            lengths = lengths.astype(jnp.int32)
        call.operand(lengths)
        call.result((lengths.shape[0] + 1,), jnp.int32)
        call.result((1,), jnp.uint32)
    results = list(call.run())
    return [
        (_at_most(offsets, capacity), malformed)
        for (_, capacity), offsets, malformed in zip(
            features, results[::2], results[1::2], strict=True
        )
    ]


def _at_most(offsets: jax.Array, capacity: Any) -> jax.Array:
    if not is_symbolic(capacity):
        return offsets
    return jnp.minimum(offsets, jnp.asarray(capacity, jnp.int32))


def offsets_of(lengths: Any, capacity: int) -> Offsets:
    """Adds up lengths, and cuts what no bag can have; a negative one counts as 0.

    Returns int32[bags + 1], where each bag begins and the last one ends, from 0 to
    ``capacity``, never falling. Also uint32[1], how many bags were cut.
    """
    return offsets_of_each([(lengths, capacity)])[0]


def count_malformed(
    tables: Sequence[TableSpec],
    states: Mapping[str, TableState],
    malformed: Sequence[tuple[str, jax.Array]],
) -> dict[str, TableState]:
    """Counts cut bags, uint32[1] by table name for each feature, in its first row."""
    by_name = {table.name: table for table in tables}
    named = [(by_name[name], count) for name, count in malformed if name in by_name]
    return add_to_counters("malformed_lengths", states, named)
