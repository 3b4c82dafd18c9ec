# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Warns where the host reads counters: of rows that nothing trains, and lost ids."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping

from jax_dynemb._src.config import TableConfig

_MANY_LOOKUPS = 100
# Tables that were warned of, and those that are used otherwise than in training.
_untrained: set[str] = set()
_otherwise: set[str] = set()
_UNTRAINED = (
    "Table '{name}' has had {lookups} training lookups and no update: its rows are the "
    "initial ones. jax.grad sees the rows of a lookup as constants, so look up before "
    "it: rows, residual, state = coll.lookup(state, ids); d_rows = "
    "jax.grad(loss)(rows); state = coll.apply_gradients(state, residual, d_rows). In "
    "Flax write jde.nnx.value_and_grad and jde.nnx.Optimizer. Rows that shall stay: "
    "look up by find (train=False), or give the table optimizer=jde.optim.none()."
)
# One id in so many that an evicting table refuses is chance: a bucket in which one
# lookup has more ids than slots.
_OFTEN = 1_000
_REFUSING = (
    "Table '{name}' refused {refused} ids: their buckets are full ({rows} of {slots} "
    "rows are taken). Raise capacity, or use on_full='evict' so that old rows make "
    "room."
)
_EVICTING = (
    "Table '{name}' refused {refused} ids although it evicts, of {ids} that were "
    "looked up: they read their initial rows and are not trained. Rows that the "
    "same call uses make no room, nor do pinned and held ones, and an id has one "
    "bucket of 128 rows. Raise capacity, now {slots}, to several times the "
    "different ids of a batch, or split the batch."
)
_WARNS = {"warn": _REFUSING, "evict": _EVICTING}
_RAISES = {"error": _REFUSING, "evict_or_error": _EVICTING}
# How many ids each table had refused at its latest warning.
_refused: dict[str, int] = {}


def may_stay_untrained(tables: Iterable[str]) -> None:
    """Notes that some tables are evaluated by ``lookup``, or updated by a caller.

    Args:
      tables: their names.
    """
    _otherwise.update(tables)


def warn_of_losses(table: TableConfig, counters: Mapping[str, int]) -> None:
    """Warns of a table that is never updated, or that has refused ids.

    Args:
      table: its config.
      counters: of it, by name.
    """
    _warn_of_untrained(table, counters)
    _warn_of_refused(table, counters)


def _warn_of_untrained(table: TableConfig, counters: Mapping[str, int]) -> None:
    """Warns once of a table that is looked up for training and never updated."""
    name, lookups = table.name, counters["lookups"]
    if counters["step"] or lookups < _MANY_LOOKUPS or name in _otherwise:
        return
    if name in _untrained or table.optimizer.kind == "none":
        return
    _untrained.add(name)
    _warn(_UNTRAINED.format(name=name, lookups=lookups))


def _warn_of_refused(table: TableConfig, counters: Mapping[str, int]) -> None:
    """Warns once whenever the refused ids of a table have doubled.

    A table that competes or refuses does what it is for, and stays silent.
    """
    name, refused = table.name, counters["refused"]
    ids = counters["hits"] + counters["misses"]
    before = _refused.get(name, 0)
    if refused < before:  # another table of the name, or a cleared one
        before = 0
    if table.on_full not in _WARNS or refused == 0 or refused < 2 * before:
        return
    if table.on_full == "evict" and refused * _OFTEN <= ids:
        return
    _refused[name] = refused
    _warn(_said(_WARNS[table.on_full], table, counters))


def refuse_losses(table: TableConfig, counters: Mapping[str, int]) -> None:
    """Raises RuntimeError if a table has refused ids that shall not be lost.

    Args:
      table: its config.
      counters: of it, by name.
    """
    if table.on_full in _RAISES and counters["refused"] > 0:
        raise RuntimeError(_said(_RAISES[table.on_full], table, counters))


def _said(text: str, table: TableConfig, counters: Mapping[str, int]) -> str:
    ids, slots = counters["hits"] + counters["misses"], table.num_slots
    numbers = {name: counters[name] for name in ("refused", "rows")}
    return text.format(name=table.name, ids=ids, slots=slots, **numbers)


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=4)
