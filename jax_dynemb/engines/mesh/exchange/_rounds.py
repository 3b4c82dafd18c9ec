# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the rounds that a batch of split tables travels in.

All ids travel in the first round if they fit, else in as many rounds as needed. Each
round takes the same range of hashes on all devices. Where the room is enough for any
batch, the program has no further rounds, and on a GPU the host need not wait.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from jax_dynemb._spec import TableSpec
from jax_dynemb.engines.mesh.exchange._device_batch import Batch, Input
from jax_dynemb.engines.mesh.exchange._route import Route
from jax_dynemb.engines.mesh.exchange._send_ids import (
    Window,
    next_window,
    send_ids_and_uses,
)
from jax_dynemb.ops import FeatureInput, one_row_each, padding

T = TypeVar("T")


class Sent(NamedTuple):
    """Holds what an owner receives in the first round.

    Attributes:
      ids: of each table, uint32[places, 2]; padding everywhere if not all ids fit.
      uses: by table, see ``send_ids_and_uses``.
      others: what travelled with them.
      window: of the round, see ``whole_window``.
      fits: bool[], whether one round is enough on every device; the same on all.
      peaks: int32[tables], the most ids that a device has for one owner.
    """

    ids: list[jax.Array]
    uses: dict[int, jax.Array]
    others: list[jax.Array]
    window: Window
    fits: jax.Array
    peaks: jax.Array


def send_first(
    batch: Batch,
    found: Route,
    counted: Sequence[int] = (),
    others: Sequence[jax.Array] = (),
) -> Sent:
    """Sends as many ids as there is room for, and how many there are.

    To ask first whether all fit would be a collective of its own. If they do not,
    owners forget what they got: then the further rounds take all ids.
    """
    sections = batch.sections
    most = _most(batch, found).astype(jnp.uint32)
    said = jnp.broadcast_to(most, (sections.shards, len(sections.tables)))
    begin = first_begin(batch, found)
    all_ids = Window(begin, sections.by_table(found.starts[1:]))
    ids, uses, (heard, *rest) = send_ids_and_uses(
        sections, found, batch.ids, all_ids, counted, (said, *others)
    )
    peaks = heard.max(axis=0).astype(jnp.int32)
    fits = _fit(batch, peaks)
    if not sections.always_fit:
        ids = [jnp.where(fits, each, padding(each.shape[:1])) for each in ids]
        uses = {t: jnp.where(fits, each, jnp.uint32(0)) for t, each in uses.items()}
    window = whole_window(batch, found, fits, begin)
    return Sent(ids, uses, rest, window, fits, peaks)


def fitting(batch: Batch, found: Route) -> jax.Array:
    """Whether one round is enough on every device, where no ids are sent first."""
    return _fit(batch, jax.lax.pmax(_most(batch, found), batch.sections.axes))


def _most(batch: Batch, found: Route) -> jax.Array:
    """The most ids of each table that this device has for one owner."""
    counts = batch.sections.by_table(found.starts[1:] - found.starts[:-1])
    return counts.max(axis=1)


def _fit(batch: Batch, peaks: jax.Array) -> jax.Array:
    if batch.sections.always_fit:
        return jnp.ones((), bool)
    return (peaks <= jnp.array(batch.sections.capacities, jnp.int32)).all()


def whole_window(batch: Batch, found: Route, fits: jax.Array, begin: Any) -> Window:
    """Everything, or nothing where it does not fit.

    Args:
      batch: the ids.
      found: their route.
      fits: whether all of them fit.
      begin: of the window if they do; any numbers if they do not.
    """
    end = batch.sections.by_table(found.starts[1:])
    return Window(begin, jnp.where(fits, end, begin))


def first_begin(batch: Batch, found: Route) -> jax.Array:
    """Where the sections begin, int32[tables, shards]."""
    return batch.sections.by_table(found.starts[:-1])


def further_rounds(
    batch: Batch,
    found: Route,
    fits: jax.Array,
    carry: T,
    one: Callable[[Window, T], T],
) -> tuple[jax.Array, T]:
    """``carry = one(window, carry)`` while a device has ids that did not fit.

    Returns:
      Where the windows have ended, ``first_begin`` if there were none; and the carry.
    """
    begin = first_begin(batch, found)
    if batch.sections.always_fit:
        return begin, carry

    def body(loop: Any) -> Any:
        begin, _, carry = loop
        window = next_window(batch.sections, found, batch.ids, begin)
        return window.end, _more(batch, found, window.end), one(window, carry)

    loop = jax.lax.while_loop(lambda loop: loop[1], body, (begin, ~fits, carry))
    return loop[0], loop[2]


def _more(batch: Batch, found: Route, end: jax.Array) -> jax.Array:
    """Returns whether any device has further ids; equal on all devices."""
    left = (end < batch.sections.by_table(found.starts[1:])).any()
    return jax.lax.pmax(left.astype(jnp.int32), batch.sections.axes) > 0


def on_the_wire(batch: Batch, tables: Sequence[TableSpec]) -> list[TableSpec]:
    """Configs whose rows come in the dtype of the exchange, one for each id."""
    pairs = zip(tables, batch.sections.dtypes, strict=True)
    return [dataclasses.replace(t, dtype=dtype, pooling=None) for t, dtype in pairs]


def inputs_of_ids(
    tables: Sequence[TableSpec],
    ids: Sequence[jax.Array],
    uses: Mapping[int, jax.Array] | None = None,
) -> list[Input]:
    """Returns the inputs of an owner.

    Args:
      tables: those of the ids.
      ids: that it received, of each table.
      uses: by number of the table, how many ids of a device each one is.
    """
    inputs = []
    for n, (t, x) in enumerate(zip(tables, ids, strict=True)):
        counts = None if uses is None else uses.get(n)
        given = FeatureInput(x, None, None, uses=counts)
        inputs.append((one_row_each(t.name, t.name, x.shape[0]), given))
    return inputs
