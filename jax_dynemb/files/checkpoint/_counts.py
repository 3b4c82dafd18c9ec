# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Counts of ids without a row, where a table has another counter than was saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

import jax

from jax_dynemb.admission import Frequency
from jax_dynemb.files.checkpoint import _stored
from jax_dynemb.files.checkpoint._compare import Plan
from jax_dynemb.files.checkpoint._tree import Path, Place
from jax_dynemb.ops import TableState
from jax_dynemb.rows import Schema, counts_of
from jax_dynemb.table import with_counts, with_sketch

_ZERO = "the counts of ids without a row start at 0"


def carry_counts(
    folder: FilePath,
    fields: Mapping[str, Any],
    leaves: dict[Path, Any],
    places: Mapping[Path, Place],
    plan: Plan,
) -> Iterator[str]:
    """Fills the counters of tables that were not read as they were saved.

    Replaces them in ``leaves``. Yields a sentence for counts that are not as they were.
    """
    for at, place in places.items():
        rule, name = place.config.admission, "/".join(at)
        emptied = at in plan.again or (*place.arrays, "sketch") in plan.emptied
        if not isinstance(rule, Frequency) or not emptied:
            continue
        if name not in fields["tables"]:
            continue
        own = [path for path in leaves if path[: len(place.arrays)] == place.arrays]
        state = _stored.arrays_of(place, [leaves[path] for path in own])
        state, problems = _filled(folder, fields, name, place, state)
        leaves |= dict(zip(own, jax.tree.leaves(state), strict=True))
        yield from (f"Table '{name}': {problem}" for problem in problems)


def _filled(
    folder: FilePath,
    fields: Mapping[str, Any],
    name: str,
    place: Place,
    state: TableState,
) -> tuple[TableState, tuple[str, ...]]:
    rule, schema = place.config.admission, Schema.from_json(fields["tables"][name])
    assert isinstance(rule, Frequency)
    saved = _stored.open_counter(folder, fields, name)
    if saved is None:
        return state, (f"it was saved without a counter: {_ZERO}.",)
    if schema.config.get("counter") == "exact":
        return with_counts(place.coll, place.name, state, *counts_of(saved))
    if rule.counts_keys:
        return state, (f"it was saved with a sketch, which has no ids: {_ZERO}.",)
    if schema.hash_seed != place.config.hash_seed:
        return state, (f"its sketch was saved with another hash_seed: {_ZERO}.",)
    bits = int(schema.config.get("counter_bits", rule.counter_bits))
    new = with_sketch(place.coll, place.name, state, saved, bits)
    if new is None:
        return state, (
            f"its sketch is of {len(saved)} buckets, and this table has "
            f"{place.config.num_buckets}: {_ZERO}.",
        )
    return new, (
        "its sketch has another size: an id counts as often as before or more often, "
        "so it is admitted early or in time.",
    )
