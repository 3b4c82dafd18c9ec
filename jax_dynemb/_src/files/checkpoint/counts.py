# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Counts of ids without a row, where a table has another counter than was saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

import jax

from jax_dynemb._src.admission import Frequency
from jax_dynemb._src.files.checkpoint import stored as _stored
from jax_dynemb._src.files.checkpoint.compare import Plan
from jax_dynemb._src.files.checkpoint.tree import Path, Place
from jax_dynemb._src.table import with_counter


def carry_counts(
    folder: FilePath,
    fields: Mapping[str, Any],
    leaves: dict[Path, Any],
    places: Mapping[Path, Place],
    plan: Plan,
) -> Iterator[str]:
    """Fills counters in ``leaves`` that were not read as saved; yields what differs."""
    for at, place in places.items():
        rule, name = place.config.admission, "/".join(at)
        emptied = at in plan.again or (*place.arrays, "sketch") in plan.emptied
        if not isinstance(rule, Frequency) or not emptied:
            continue
        if name not in fields["tables"]:
            continue
        own = [path for path in leaves if path[: len(place.arrays)] == place.arrays]
        state = _stored.arrays_of(place, [leaves[path] for path in own])
        stored = _stored.open_table(folder, fields, name)
        state, problems = with_counter(place.coll, place.name, state, stored)
        leaves |= dict(zip(own, jax.tree.leaves(state), strict=True))
        yield from (f"Table '{name}': {problem}" for problem in problems)
