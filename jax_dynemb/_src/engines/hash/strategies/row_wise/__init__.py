# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables whose buckets are split over the devices, the strategy ``"row_wise"``.

The owner of an id is the device that holds its bucket. Distinct ids travel to their
owners, and rows or sums of bags travel back; gradients take the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb._src.engines.hash.exchange import Input, make_batch
from jax_dynemb._src.engines.hash.layouts import Placement
from jax_dynemb._src.engines.hash.strategies.local import for_update as for_update
from jax_dynemb._src.engines.hash.strategies.row_wise import find_rounds as _find_rounds
from jax_dynemb._src.engines.hash.strategies.row_wise import (
    lookup_rounds as _lookup_rounds,
)
from jax_dynemb._src.engines.hash.strategies.row_wise import (
    touch_rounds as _touch_rounds,
)
from jax_dynemb._src.engines.hash.strategies.row_wise.exchange_residual import (
    ExchangeResidual,
    LaterSlots,
)
from jax_dynemb._src.engines.hash.strategies.row_wise.sent_ids import SentIds, send
from jax_dynemb._src.engines.hash.strategies.row_wise.split import split_batch
from jax_dynemb._src.engines.hash.strategies.row_wise.update_rounds import (
    apply_gradients as apply_gradients,
)
from jax_dynemb._src.engines.hash.strategies.strategy import (
    FindResult,
    LookupResult,
    States,
)
from jax_dynemb._src.ops import FeatureResidual, TableState
from jax_dynemb._src.spec import TableSpec


def route(
    placement: Placement, tables: Sequence[TableSpec], inputs: Sequence[Input]
) -> SentIds:
    """See ``Strategy``."""
    return send(*split_batch(placement, tables, inputs))


def lookup(
    placement: Placement,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    states: States,
    scores: Mapping[str, jax.Array],
    sent: Any = None,
) -> LookupResult:
    """See ``Strategy``; it keeps ``ExchangeResidual``."""
    batch, bags = split_batch(placement, tables, inputs)
    sent = send(batch, bags) if sent is None else sent
    done = _lookup_rounds.lookup(batch, bags, sent, states, scores)
    fits = None if done.fits is None else done.fits[None]
    pooled: dict[str, list[FeatureResidual]] = {}
    for feature, one in zip(bags.features, done.bags, strict=True):
        pooled.setdefault(feature.table.name, []).append(one)
    rows, features, later, slots_of = {}, {}, None, {}
    if batch is not None and done.later is not None:
        slots_of = batch.by_feature(done.later)
        later = LaterSlots(tuple(slots_of), done.later)
    for layout, feature_input in inputs:
        rows[layout.feature], scale = done.outputs[layout.feature]
        # Slots of the first round stay with the owners.
        slots = slots_of.get(layout.feature, jnp.full(layout.num_ids, -1, jnp.int32))
        features[layout.feature] = FeatureResidual(
            feature_input.ids,
            slots,
            feature_input.offsets,
            feature_input.weights,
            scale,
            layout,
        )
    kept = ExchangeResidual(done.route, fits, done.received, later, pooled)
    return LookupResult(rows, features, kept, done.states)


def find(
    placement: Placement,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    states: States,
) -> FindResult:
    """See ``Strategy``."""
    batch, bags = split_batch(placement, tables, inputs)
    return FindResult(*_find_rounds.find(batch, bags, states))


def touch(
    placement: Placement,
    tables: Sequence[TableSpec],
    inputs: Sequence[Input],
    states: States,
    scores: Mapping[str, jax.Array],
) -> dict[str, TableState]:
    """See ``Strategy``."""
    return _touch_rounds.touch(make_batch(placement, tables, inputs), states, scores)
