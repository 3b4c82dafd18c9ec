# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Models removal by rule: which keys a rule removes, one comparison at a time."""

from typing import Any

import numpy as np

from ._hash import hash_of
from ._table import ReferenceTable, Row


def keys_to_remove(
    table: ReferenceTable,
    *,
    unused_for: int | None = None,
    unused_since: int | None = None,
    count_below: int | None = None,
    score_below: int | None = None,
    norm_below: float | None = None,
    combine: str = "all",
    keep_at_least: int = 0,
    keep_at_most: int | None = None,
) -> set[int]:
    """The keys that `Tables.erase_where` removes under these fields of a rule."""
    last_use = table.last_use

    def is_selected(row: Row) -> bool:
        answers = []
        if unused_for is not None:
            answers.append(table.clock - last_use(row) > unused_for)
        if unused_since is not None:
            answers.append(last_use(row) < unused_since)
        if count_below is not None:
            answers.append(table.count(row.score) < count_below)
        if score_below is not None:
            answers.append(row.score < score_below)
        if norm_below is not None:
            values = row.values.astype(np.float32)
            norm = np.sqrt(np.sum(values * values, dtype=np.float32))
            answers.append(bool(norm < np.float32(norm_below)))
        return (all if combine == "all" else any)(answers) if answers else False

    rows: dict[int, Any] = {k: row for k, row in table.items() if not row.pinned}

    def rank(key: int) -> tuple[int, int]:
        return table.rank(rows[key].score), hash_of(key, table.config.hash_seed)

    leaving = sorted((k for k, row in rows.items() if is_selected(row)), key=rank)
    leaving = leaving[: max(0, len(rows) - keep_at_least)]
    if keep_at_most is not None:
        staying = sorted(rows.keys() - set(leaving), key=rank)
        leaving += staying[: max(0, len(staying) - keep_at_most)]
    return set(leaving)
