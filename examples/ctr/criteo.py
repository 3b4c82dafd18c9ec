# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Reads Criteo's display-advertising format: a label, 13 numbers, 26 categories."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from .clicks import Clicks, Source, hash_column, split_by_time

NUMBERS = tuple(f"I{i}" for i in range(1, 14))
CATEGORIES = tuple(f"C{i}" for i in range(1, 27))
FIELDS = 1 + len(NUMBERS) + len(CATEGORIES)

DEFAULTS = {"epochs": 1, "capacity": 1_000_000}


def load(path: Path, most_rows: int | None = None) -> Source:
    """Reads a file in time order and cuts its rows 90/10.

    Fields are separated by tabs or commas, with or without a header line. A missing
    number counts as 0, a missing category as no id at all (a row of zeros).

    Args:
      path: the file.
      most_rows: stop after so many rows; all of them if None.

    Raises:
      ValueError: a line has the wrong number of fields, or there are fewer than 2 rows.
    """
    rows = list(islice(_rows(path), most_rows))
    if len(rows) < 2:
        raise ValueError(f"{path} holds {len(rows)} rows; at least 2 are needed.")
    label, *columns = zip(*rows, strict=True)
    numbers = np.stack(
        [_to_number(column) for column in columns[: len(NUMBERS)]], axis=1
    )
    categories = zip(CATEGORIES, columns[len(NUMBERS) :], strict=True)
    ids = {name: hash_column(name, column) for name, column in categories}
    clicks = Clicks.make(ids, np.asarray(label, dtype=np.float32), numbers)
    title = f"Criteo format, {len(clicks):,} rows of {path.name}"
    return Source(title, (split_by_time(clicks),), shuffle=False, defaults=DEFAULTS)


def _rows(path: Path) -> Iterator[list[str]]:
    with path.open(encoding="utf-8") as file:
        separator = "\t" if "\t" in file.readline() else ","
        file.seek(0)
        for number, line in enumerate(file, start=1):
            fields = line.rstrip("\r\n").split(separator)
            if number == 1 and not _is_label(fields[0]):
                continue
            if len(fields) != FIELDS:
                raise ValueError(
                    f"{path.name}, line {number}: {len(fields)} fields instead of "
                    f"{FIELDS} (label, 13 numbers, 26 categories)."
                )
            yield fields


def _is_label(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _to_number(column: tuple[str, ...]) -> np.ndarray:
    """Counts have long tails, and a few are negative: the logarithm tames both."""
    raw = np.asarray([float(field) if field else 0.0 for field in column])
    return np.log1p(np.maximum(raw, 0.0))
