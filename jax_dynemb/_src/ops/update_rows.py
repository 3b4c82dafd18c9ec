# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients into tables: the fused update, and the reduction alone."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops.attributes import feature_attribute
from jax_dynemb._src.ops.call import ALL, Call
from jax_dynemb._src.ops.call_batches import Indices, call_batches, rows_of
from jax_dynemb._src.ops.residual import FeatureGradient
from jax_dynemb._src.ops.row_keys import with_index_of, with_row_keys
from jax_dynemb._src.ops.row_views import RowBuffers, States, feature_fields, waves
from jax_dynemb._src.ops.shared_ids import SharedArray
from jax_dynemb._src.ops.stamps import StampsOf
from jax_dynemb._src.ops.state import TableState
from jax_dynemb._src.ops.tier_state import rounds_in_tier, rows_part
from jax_dynemb._src.ops.tiers import fetch, in_rounds, send_home, takes_one_round
from jax_dynemb._src.spec import TableSpec

_INDEX = ("index", "counters")


def _start(
    op: str,
    tables: Sequence[TableSpec],
    states: States,
    features: Sequence[FeatureGradient],
    stamps: StampsOf | None,
    *operands: jax.Array,
    members: Sequence[str] = ALL,
    **attributes: np.int64,
) -> Call:
    """Starts a call of gradients: operands, stamps, tables, features."""
    call = Call(
        op,
        tables,
        [f.layout.num_ids for f in features],
        features=gradient_attribute(tables, features),
        stamped=np.int64(stamps is not None),
        joined=np.int64(any(f.joined for f in features)),
        **attributes,
    )
    call.operand(*operands, None if stamps is None else stamps(tables, states))
    call.update(*call.arrays(states, members))
    add_gradients(call, features)
    return call


def _batches(
    tables: Sequence[TableSpec], features: Sequence[FeatureGradient]
) -> Iterator[tuple[Indices, Indices]]:
    table_of = [f.layout.table for f in features]
    return call_batches(tables, table_of, waves(table_of, [f.view for f in features]))


def gradient_attribute(
    tables: Sequence[TableSpec], features: Sequence[FeatureGradient]
) -> np.ndarray:
    """The attribute ``features`` of a call that takes gradients."""
    where = RowBuffers().fields([f.view for f in features])
    pairs = zip(features, where, strict=True)
    rows = [feature_fields(f.layout, tables) | w for f, w in pairs]
    shared = _shared_slots(features)
    if shared is not None:
        shared.add_counts(rows)
    return feature_attribute(rows)


def _shared_slots(features: Sequence[FeatureGradient]) -> SharedArray | None:
    whole = [None if f.shared is None else f.shared[1] for f in features]
    if all([each is None for each in whole]):
        return None
    return SharedArray(whole, [f.slots for f in features])


def _shared_ids(features: Sequence[FeatureGradient]) -> SharedArray:
    whole = [None if f.shared is None else f.shared[0] for f in features]
    return SharedArray(whole, [f.ids for f in features])


def add_gradients(
    call: Call, features: Sequence[FeatureGradient], with_ids: bool = True
) -> None:
    """Adds the operands of the features; an array that several share only once."""
    there: set[int] = set()
    slots = _shared_slots(features)
    ids = _shared_ids(features) if slots and with_ids else None
    for n, f in enumerate(features):
        if with_ids:
            call.operand(ids.operand(n, f.ids) if ids else f.ids)
        call.operand(slots.operand(n, f.slots) if slots else f.slots)
        if f.view is None or f.view.array not in there:
            call.operand(f.gradients)
        if f.view is not None:
            there.add(f.view.array)
        call.operand(f.offsets, f.weights, f.scale)


def update(
    tables: Sequence[TableSpec],
    states: States,
    features: Sequence[FeatureGradient],
    hyper: jax.Array,
    stamps: StampsOf | None = None,
) -> dict[str, TableState]:
    """Makes one fused optimizer update of every touched row; returns the new states.

    ``hyper`` is float32[tables, 5], in the order of
    ``constants()["hyper_parameters"]``. For the loop of all optimizers it is
    float32[tables, any_hyper]: ``row_hyper``, then those of each table's own kind.
    Without stamps the slots are of these very states.
    """
    slots, ids = _by_table(features, "slots"), _by_table(features, "ids")
    tiered = [table for table in tables if table.tier is not None]
    short = [t for t in tiered if takes_one_round(t, slots.get(t.name, []))]
    names = {table.name for table in short}
    long = [table for table in tiered if table.name not in names]
    names = {table.name for table in long}
    one_round = [i for i, table in enumerate(tables) if table.name not in names]
    others = [i for i, table in enumerate(tables) if table.name in names]

    def run(
        some: Indices, states: States, places: dict[str, list[jax.Array]]
    ) -> dict[str, TableState]:
        chosen = [tables[i] for i in some]
        own = {table.name for table in chosen}
        mine = _placed([f for f in features if f.layout.table in own], places)
        parts = [t if t.tier is None else rows_part(t, rounds=True) for t in chosen]
        rounded = [table for table in chosen if rounds_in_tier(table)]
        keyed = states
        for table in rounded:
            name = table.name
            keyed = with_row_keys(table, keyed, places[name], ids[name])
        new = _updates(parts, keyed, mine, rows_of(hyper, some), stamps)
        for table in rounded:
            new = with_index_of(table, new, states)
        return new

    fetched, places = fetch(short, states, slots, ids) if short else ({}, {})
    ready = {table.state_name: fetched[table.name].state for table in short}
    new = run(one_round, {**states, **ready}, places) if one_round else {}
    new |= send_home(short, new, fetched)
    if long:
        body = functools.partial(run, others)
        new |= in_rounds(long, states, slots, ids, body)
    return new


def _by_table(
    features: Sequence[FeatureGradient], name: str
) -> dict[str, list[jax.Array]]:
    """An array of each feature, by the name of its table."""
    found: dict[str, list[jax.Array]] = {}
    for f in features:
        found.setdefault(f.layout.table, []).append(getattr(f, name))
    return found


def _placed(
    features: Sequence[FeatureGradient], places: Mapping[str, Sequence[jax.Array]]
) -> list[FeatureGradient]:
    """The features, where those of some tables have other slots."""
    left = {name: iter(own) for name, own in places.items()}
    return [
        dataclasses.replace(f, slots=next(left[f.layout.table]), shared=None)
        if f.layout.table in left
        else f
        for f in features
    ]


def _updates(
    tables: Sequence[TableSpec],
    states: States,
    features: Sequence[FeatureGradient],
    hyper: jax.Array,
    stamps: StampsOf | None,
) -> dict[str, TableState]:
    """The same of tables whose rows are all in device memory."""
    new: dict[str, TableState] = {}
    for some, mine in _batches(tables, features):
        chosen, numbers = [tables[i] for i in some], rows_of(hyper, some)
        now = {**states, **new}
        new |= _update(chosen, now, [features[i] for i in mine], numbers, stamps)
    return new


def _update(
    tables: Sequence[TableSpec],
    states: States,
    features: Sequence[FeatureGradient],
    hyper: jax.Array,
    stamps: StampsOf | None,
) -> dict[str, TableState]:
    tuned = hyper.shape[1] == len(_ffi.constants()["hyper_parameters"])
    op = "update" if tuned else "update_any"
    call = _start(op, tables, states, features, stamps, hyper)
    return call.take_tables(call.run(), states)


def reduce(
    tables: Sequence[TableSpec],
    states: States,
    features: Sequence[FeatureGradient],
    counts_step: bool,
    stamps: StampsOf | None = None,
) -> tuple[dict[str, tuple[jax.Array, jax.Array]], dict[str, TableState]]:
    """Sums the gradients of each row; ``counts_step`` if it is half of an update.

    Returns by table, for the n ids of its features, slots int32[n], -1 where unused,
    and sums float32[n, dim]. Then the states, to be carried on.
    """
    sums: dict[str, tuple[jax.Array, jax.Array]] = {}
    new: dict[str, TableState] = {}
    for some, own in _batches(tables, features):
        chosen = [tables[i] for i in some]
        mine = [features[i] for i in own]
        batch = _reduce(chosen, {**states, **new}, mine, counts_step, stamps)
        sums, new = sums | batch[0], new | batch[1]
    return sums, new


def _reduce(
    tables: Sequence[TableSpec],
    states: States,
    features: Sequence[FeatureGradient],
    counts_step: bool,
    stamps: StampsOf | None,
) -> tuple[dict[str, tuple[jax.Array, jax.Array]], dict[str, TableState]]:
    step = np.int64(counts_step)
    call = _start(
        "reduce", tables, states, features, stamps, members=_INDEX, counts_step=step
    )
    for table in tables:
        ids = sum(f.layout.num_ids for f in features if f.layout.table == table.name)
        call.result((ids,), jnp.int32)
        call.result((ids, table.dim), jnp.float32)
    results = call.run()
    new = call.take_tables(results, states, _INDEX)
    return {t.name: (next(results), next(results)) for t in tables}, new
