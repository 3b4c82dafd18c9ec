# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Where the bags of a jagged input begin, whatever their lengths are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.jagged import check_lengths
from jax_dynemb._src.ops.call import Call
from jax_dynemb._src.ops.sizes import is_symbolic, largest
from jax_dynemb._src.ops.state import TableState, add_to_counter
from jax_dynemb._src.spec import TableSpec


def offsets_of(lengths: Any, capacity: int) -> tuple[jax.Array, jax.Array]:
    """Adds up lengths, and cuts what no bag can have; a negative one counts as 0.

    Returns int32[bags + 1], where each bag begins and the last one ends, from 0 to
    ``capacity``, never falling. Also uint32[1], how many bags were cut.
    """
    lengths = jnp.asarray(lengths)
    if lengths.dtype.itemsize < 4:
        lengths = lengths.astype(jnp.int32)
    # An attribute is static: of a symbolic size it is the bound.
    bound, most = largest(capacity), 2**31 - 2
    bound = most if bound is None else min(bound, most)
    call = Call("offsets", (), capacity=np.int64(bound))
    call.operand(lengths)
    call.result((lengths.shape[0] + 1,), jnp.int32)
    call.result((1,), jnp.uint32)
    offsets, malformed = call.run()
    if is_symbolic(capacity):
        offsets = jnp.minimum(offsets, jnp.asarray(capacity, jnp.int32))
    return offsets, malformed


def offsets_of_given(
    feature: str, lengths: Any, capacity: int
) -> tuple[jax.Array, jax.Array]:
    """Adds up a user's ``Jagged.lengths`` as ``offsets_of``; refuses other lengths."""
    return offsets_of(check_lengths(lengths, capacity, feature), capacity)


def count_malformed(
    tables: Sequence[TableSpec],
    states: Mapping[str, TableState],
    malformed: Sequence[tuple[str, jax.Array]],
) -> dict[str, TableState]:
    """Counts cut bags, uint32[1] by table name for each feature, in its first row."""
    new: dict[str, TableState] = {}
    for table in tables:
        counts = [count for name, count in malformed if name == table.name]
        if not counts:
            continue
        arrays = table.state_name
        state = new.get(arrays, states[arrays])
        row, total = table.first_row, sum(counts[1:], counts[0])
        new[arrays] = add_to_counter(state, row, "malformed_lengths", total[0])
    return new
