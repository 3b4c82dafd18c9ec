# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What the files in golden/ hold, in closed form. NumPy only.

tests/export/test_golden_files.py, in the repository of jax_dynemb, writes the same
tables with the exporter and compares them with golden/ byte by byte.
"""

from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).parent / "golden"
# The same tables from the last version whose files had no checksums.
UNCHECKED = Path(__file__).parent / "golden_without_checksums"
DIM = 5
DEFAULT = 0.25  # what an unknown id reads in "items"


def spread(count: int, start: int = 1) -> np.ndarray:
    """int64[count]: distinct numbers all over the range."""
    numbers = np.arange(start, start + count, dtype=np.uint64)
    return (numbers * np.uint64(0x9E37_79B9_7F4A_7C15)).view(np.int64)


# "items": hashed ids, small ones, and multiples of a large power of two.
KEYS = np.concatenate(
    [spread(200), np.arange(40), (np.arange(1, 61) << 44), np.array([2**63 - 1, -5])]
)
UNKNOWN = spread(50, start=1000)
CHANGED, REMOVED = KEYS[:20], KEYS[20:25]  # by the delta
NEW = np.array([777_777, -777_777])


def rows_of(keys: np.ndarray) -> np.ndarray:
    """float32[..., DIM]: the rows of "items"; multiples of 1/64, exact in bfloat16."""
    column = np.arange(1, DIM + 1)
    mixed = (np.asarray(keys)[..., None] % 1_000_003) * column
    return ((mixed % 257 - 128) / 64).astype(np.float32)


def known_rows(keys: np.ndarray) -> dict[int, np.ndarray]:
    """Rows by key."""
    return dict(zip(keys.tolist(), rows_of(keys), strict=True))


def table() -> dict[int, np.ndarray]:
    """All rows of "items"."""
    return known_rows(KEYS)


def table_after_delta() -> dict[int, np.ndarray]:
    """All rows of "items" when the delta has been applied."""
    rows = table() | known_rows(NEW)
    for key in REMOVED.tolist():
        del rows[key]
    return rows | {key: -rows[key] for key in CHANGED.tolist()}


def look_up(
    rows: dict[int, np.ndarray], ids: np.ndarray, default: float = DEFAULT
) -> np.ndarray:
    """float32[..., DIM], one id at a time."""
    unknown, zeros = np.full(DIM, default, np.float32), np.zeros(DIM, np.float32)
    found = [zeros if i == -1 else rows.get(i, unknown) for i in ids.ravel().tolist()]
    return np.array(found, np.float32).reshape(*ids.shape, DIM)


def mixed_ids(*shape: int, seed: int = 0) -> np.ndarray:
    """Known and unknown ids and padding."""
    rng = np.random.default_rng(seed)
    pool = np.concatenate([KEYS, NEW, UNKNOWN, np.full(60, -1)])
    return rng.choice(pool, shape)
