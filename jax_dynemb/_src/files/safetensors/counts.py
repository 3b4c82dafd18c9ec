# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Counts of ids without a row, in the file that has all rows of a table.

``counted_keys`` and ``counts`` are int64[m] of a table that counts by id. ``sketch`` is
int32[num_buckets, words] of one that does not, with ``counter_bits`` in the metadata.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from jax_dynemb._src.files.integrity import DamagedFileError, Header
from jax_dynemb._src.files.live import warn_of_loss
from jax_dynemb._src.files.safetensors.tensors import (
    check_keys,
    check_tensor,
    read_tensor,
)
from jax_dynemb._src.rows import StoredTable, among

BITS = "counter_bits"
_BITS = (8, 16)
_LEAST_WORDS = 4  # a block of a sketch is a multiple of 16 bytes


def counts_of_table(table: StoredTable) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Reads the tensors, widest first, and metadata that a file keeps of the counts.

    A sketch means nothing without the seed of its table's hash, which is a secret.
    """
    schema = table.schema
    if table.admission_counts is not None:
        keys, counts = table.admission_counts()
        order = np.argsort(keys)
        keys, counts = keys[order], counts[order].astype(np.int64)
        return {"counted_keys": keys, "counts": counts}, {}
    if table.sketch is None:
        return {}, {}
    if schema.hash_seed:
        warn_of_loss(
            f"Table '{schema.name}': ids without a row are counted in a sketch by a "
            "secret hash_seed, so their counts are not in the files. Pass "
            "counters=False to leave them out, or save a checkpoint to keep them."
        )
        return {}, {}
    sketch = np.ascontiguousarray(table.sketch()).view(np.int32)
    return {"sketch": sketch}, {BITS: schema.config[BITS]}


def check_counts(header: Header) -> None:
    """Refuses counts of other shapes, dtypes or orders, and those below 1."""
    if "counted_keys" in header.tensors:
        many = check_tensor(header, "counted_keys", ("I64",), None)
        check_tensor(header, "counts", ("I64",), many)
        check_keys(header, "counted_keys")
        if (read_tensor(header, "counts") < 1).any():
            raise DamagedFileError(header.path, "its 'counts' have one below 1")
    if "sketch" in header.tensors:
        buckets = check_tensor(header, "sketch", ("I32",), None, None)
        words, bits = header.tensor("sketch").shape[1], header.fields.whole(BITS)
        if not buckets or not words or words % _LEAST_WORDS or bits not in _BITS:
            problem = f"its sketch has {buckets} times {words} words of {bits} bits"
            raise DamagedFileError(header.path, problem)


def stored_counts(header: Header, admitted: np.ndarray) -> dict[str, Any]:
    """Readers of the counts, without keys int64[n] that were ``admitted`` since."""
    if "counted_keys" in header.tensors:
        return {"admission_counts": functools.partial(_counted, header, admitted)}
    if "sketch" in header.tensors:
        return {"sketch": lambda: read_tensor(header, "sketch").view(np.uint32)}
    return {}


def _counted(header: Header, admitted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    keys, counts = (read_tensor(header, name) for name in ("counted_keys", "counts"))
    waiting = ~among(keys, admitted)
    return keys[waiting], counts[waiting]
