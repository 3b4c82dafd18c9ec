# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients into tables: the fused update, and the reduction alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb import _ffi
from jax_dynemb._spec import TableSpec
from jax_dynemb.ops._attributes import feature_attribute
from jax_dynemb.ops._call import Call
from jax_dynemb.ops._call_batches import Indices, call_batches, rows_of
from jax_dynemb.ops._lookup import States, feature_fields
from jax_dynemb.ops._residual import FeatureGradient
from jax_dynemb.ops._row_views import RowBuffers, waves
from jax_dynemb.ops._stamps import StampsOf
from jax_dynemb.ops._state import TableState
from jax_dynemb.ops._tier_state import rows_part
from jax_dynemb.ops._tiers import (
    Fetched,
    fetch,
    in_rounds,
    send_home,
    takes_one_round,
)

_INDEX = ("index", "counters")


def _start(
    op: str,
    tables: Sequence[TableSpec],
    features: Sequence[FeatureGradient],
    **attributes: np.int64,
) -> Call:
    attribute = gradient_attribute(tables, features)
    num_ids = [f.layout.num_ids for f in features]
    return Call(op, tables, num_ids, features=attribute, **attributes)


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
    return feature_attribute([feature_fields(f.layout, tables) | w for f, w in pairs])


def add_gradients(
    call: Call, features: Sequence[FeatureGradient], with_ids: bool = True
) -> None:
    """Adds the operands of the features; an array that several share only once."""
    there: set[int] = set()
    for f in features:
        call.operand(f.ids if with_ids else None)
        call.operand(f.slots)
        if f.view is None or f.view.array not in there:
            call.operand(f.gradients)
        if f.view is not None:
            there.add(f.view.array)
        for array in (f.offsets, f.weights, f.scale):
            call.operand(array)


def update(
    tables: Sequence[TableSpec],
    states: States,
    features: Sequence[FeatureGradient],
    hyper: jax.Array,
    stamps: StampsOf | None = None,
) -> dict[str, TableState]:
    """One fused optimizer update of every touched row.

    Args:
      tables: those that the features belong to, all with fused optimizers.
      states: by name, see ``TableSpec.state_name``.
      features: gradients and where they belong.
      hyper: float32[tables, 5], in the order of ``constants()["hyper_parameters"]``;
        or float32[tables, any_hyper] for the loop of all optimizers: ``row_hyper``,
        then those of each table's own kind.
      stamps: of the lookup; None if the slots were found in these very states.

    Returns:
      The new states.
    """
    new: dict[str, TableState] = {}
    fetched: dict[str, Fetched] = {}
    for i, table in enumerate(tables):
        own = [f for f in features if f.layout.table == table.name]
        slots = [f.slots for f in own]
        if table.tier is None:
            continue
        if takes_one_round(table, slots):
            ids, state = [f.ids for f in own], states[table.state_name]
            fetched[table.name], places = fetch(table, state, slots, ids)
            features = _placed(features, table, places)
        else:
            new |= _update_tiered(table, states, own, hyper[i], stamps)
    whole = {table.name: table for table in tables if table.name in fetched}
    together = [i for i, t in enumerate(tables) if t.tier is None or t.name in whole]
    if len(together) < len(tables):
        tables, hyper = [tables[i] for i in together], rows_of(hyper, together)
        names = {table.name for table in tables}
        features = [f for f in features if f.layout.table in names]
    tables = [rows_part(table) if table.name in whole else table for table in tables]
    ready = {whole[name].state_name: each.state for name, each in fetched.items()}
    for some, mine in _batches(tables, features) if tables else ():
        chosen, numbers = [tables[i] for i in some], rows_of(hyper, some)
        now = {**states, **ready, **new}
        new |= _update(chosen, now, [features[i] for i in mine], numbers, stamps)
    for name, table in whole.items():
        state = new[table.state_name]
        new[table.state_name] = send_home(table, state, fetched[name])
    return new


def _placed(
    features: Sequence[FeatureGradient], table: TableSpec, places: Sequence[jax.Array]
) -> list[FeatureGradient]:
    """The features, where those of one table have other slots."""
    left = iter(places)
    return [
        dataclasses.replace(f, slots=next(left)) if f.layout.table == table.name else f
        for f in features
    ]


def _update_tiered(
    table: TableSpec,
    states: States,
    own: Sequence[FeatureGradient],
    hyper: jax.Array,
    stamps: StampsOf | None,
) -> dict[str, TableState]:
    """The same of one table and its features, in as many rounds as they need."""
    name, part = table.state_name, rows_part(table)

    def body(rows: TableState, places: list[jax.Array]) -> TableState:
        placed = _placed(own, table, places)
        return _update([part], {name: rows}, placed, hyper[None], stamps)[name]

    slots, ids = [f.slots for f in own], [f.ids for f in own]
    return {name: in_rounds(table, states[name], slots, ids, body)}


def _update(
    tables: Sequence[TableSpec],
    states: States,
    features: Sequence[FeatureGradient],
    hyper: jax.Array,
    stamps: StampsOf | None,
) -> dict[str, TableState]:
    tuned = hyper.shape[1] == len(_ffi.constants()["hyper_parameters"])
    op = "update" if tuned else "update_any"
    call = _start(op, tables, features, stamped=np.int64(stamps is not None))
    call.operand(hyper)
    call.operand(_stamps_of(tables, stamps))
    call.update_tables(states)
    add_gradients(call, features)
    return call.take_tables(call.run(), states)


def _stamps_of(
    tables: Sequence[TableSpec], stamps: StampsOf | None
) -> jax.Array | None:
    return None if stamps is None else stamps([table.name for table in tables])


def reduce(
    tables: Sequence[TableSpec],
    states: States,
    features: Sequence[FeatureGradient],
    counts_step: bool,
    stamps: StampsOf | None = None,
) -> tuple[dict[str, tuple[jax.Array, jax.Array]], dict[str, TableState]]:
    """Sums the gradients of each row.

    Args:
      tables: those that the features belong to.
      states: by name, see ``TableSpec.state_name``.
      features: gradients and where they belong.
      counts_step: whether this is half of an update, which counts as a step.
      stamps: see ``update``.

    Returns:
      By table: slots int32[n], -1 where unused, and sums float32[n, dim], for the n
      ids of the table's features. Then the states, to be carried on.
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
    call = _start(
        "reduce",
        tables,
        features,
        counts_step=np.int64(counts_step),
        stamped=np.int64(stamps is not None),
    )
    call.operand(_stamps_of(tables, stamps))
    call.update_tables(states, _INDEX)
    add_gradients(call, features)
    for table in tables:
        ids = sum(f.layout.num_ids for f in features if f.layout.table == table.name)
        call.result((ids,), jnp.int32)
        call.result((ids, table.dim), jnp.float32)
    results = call.run()
    new = call.take_tables(results, states, _INDEX)
    return {t.name: (next(results), next(results)) for t in tables}, new
