# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of one device: nothing travels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src import ops
from jax_dynemb._src.engines import shard
from jax_dynemb._src.engines.hash.exchange import Input
from jax_dynemb._src.engines.hash.layouts import Layout
from jax_dynemb._src.engines.hash.strategies.strategy import (
    FindResult,
    LookupGradients,
    LookupResult,
    States,
    Update,
    features_of,
)
from jax_dynemb._src.ops import FeatureResidual, TableState
from jax_dynemb._src.spec import TableSpec


def route(
    placement: Layout, tables: Sequence[TableSpec], inputs: Sequence[Input]
) -> None:
    """See ``Strategy``: no id travels ahead of a lookup."""
    del placement, tables, inputs


def lookup(
    placement: Layout,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    states: States,
    scores: Mapping[str, jax.Array],
    sent: Any = None,
) -> LookupResult:
    """See ``Strategy``; the kernel returns the stamps."""
    del sent
    if any([t.tier is not None for t in tables]):
        inputs = placement.copied(tables, states, inputs)
    numbers = jnp.stack([scores[t.name] for t in tables])
    outputs, new, stamps = ops.lookup(tables, states, inputs, numbers)
    if any([t.optimizer.decays_lookups for t in tables]):
        new |= shard.with_due_decay(tables, {**states, **new}, inputs, outputs)
    rows, features = {}, {}
    for (layout, feature_input), output in zip(inputs, outputs, strict=True):
        rows[layout.feature] = output["rows"]
        features[layout.feature] = FeatureResidual(
            # Gradients of weights read a row for each id, without bags.
            ids=feature_input.ids
            if layout.weighted or feature_input.given is None
            else feature_input.given,
            slots=output["slots"],
            offsets=feature_input.offsets,
            weights=feature_input.weights,
            scale=output.get("scale"),
            layout=layout,
        )
    return LookupResult(rows, features, None, new, stamps)


def find(
    placement: Layout,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    states: States,
) -> FindResult:
    """See ``Strategy``."""
    del placement
    outputs, new = ops.find(tables, states, inputs)
    rows, found = {}, {}
    for (layout, _), output in zip(inputs, outputs, strict=True):
        rows[layout.feature], found[layout.feature] = output["rows"], output["found"]
    return FindResult(rows, found, new)


def touch(
    placement: Layout,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    states: States,
    scores: Mapping[str, jax.Array],
) -> dict[str, TableState]:
    """See ``Strategy``."""
    del placement
    keys = [ops.slots_only(*each) for each in inputs]
    numbers = jnp.stack([scores[t.name] for t in tables])
    return ops.lookup(tables, states, keys, numbers)[1]


def apply_gradients(
    placement: Layout,
    tables: Sequence[TableSpec],
    lookups: Sequence[LookupGradients],
    states: States,
    update: Update,
    all_fits: bool,
) -> dict[str, TableState]:
    """See ``Strategy``."""
    del placement, tables, all_fits
    return update(states, features_of(lookups))


def for_update(
    placement: Layout,
    table: TableSpec,
    state: TableState,
    hyper: Mapping[str, jax.Array],
) -> TableSpec:
    """See ``Strategy``."""
    del placement, state, hyper
    return table
