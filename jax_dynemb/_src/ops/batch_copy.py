# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Copies the ids of a batch, so that recorded calls find them at one address.

On a GPU XLA replays recorded calls, and records a call again where one of its buffers
has another address than in the step before. Tables are donated and keep theirs, but a
batch is a new array in each step. A call about tiered tables has up to 200 buffers, so
recording it takes the host longer than the copy takes the device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import jax

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops.layout import FeatureInput, FeatureLayout
from jax_dynemb._src.ops.state import TableState
from jax_dynemb._src.spec import TableSpec


def copied_batch(
    tables: Sequence[TableSpec],
    states: Mapping[str, TableState],
    inputs: Sequence[tuple[FeatureLayout, FeatureInput]],
) -> list[tuple[FeatureLayout, FeatureInput]]:
    """Copies the ids of features on a GPU, where a table has a tier."""
    tiered = [table for table in tables if table.tier is not None]
    if not tiered:
        return list(inputs)
    lookups = (0, _ffi.code("counters", "lookups"), 1)
    # The highest bit of a 64-bit count: 0, but XLA does not know that, so it copies.
    nothing = states[tiered[0].state_name].counters[lookups] >> 31
    return [
        (layout, dataclasses.replace(given, ids=_copied(given.ids, nothing)))
        for layout, given in inputs
    ]


def _copied(ids: jax.Array, nothing: jax.Array) -> jax.Array:
    return jax.lax.platform_dependent(ids, nothing, cuda=_copy, default=_as_it_is)


def _copy(ids: jax.Array, nothing: jax.Array) -> jax.Array:
    return ids ^ nothing.astype(ids.dtype)


def _as_it_is(ids: jax.Array, nothing: jax.Array) -> jax.Array:
    del nothing
    return ids
