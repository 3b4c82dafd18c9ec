# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What must hold between the tensors of a file before one of them is used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from jax_dynemb_torch._integrity import DamagedFileError, Header
from jax_dynemb_torch._perfect_hash import (
    FOLDED,
    MIXED,
    PLAIN,
    PerfectHash,
    find,
    steps_of,
)

_FLOATS = ("F32", "BF16", "F16")
_RESERVED = -4, -1
_PIECE = 1 << 16  # keys at a time: nothing is copied beside a cache
_MOST_BITS = 32


def check_table(header: Header, tensors: Mapping[str, torch.Tensor]) -> int:
    """Checks shapes and dtypes of a whole table, and returns its columns.

    Raises:
      DamagedFileError: some do not fit.
    """
    rows = header.tensor("rows")
    if len(rows.shape) != 2:
        raise DamagedFileError(header.path, f"'rows' have the shape {rows.shape}")
    dim = rows.shape[1]
    if "extra_rows" in tensors and len(header.tensor("extra_rows").shape) == 2:
        dim = header.tensor("extra_rows").shape[1]
    if header.fields.get("dim") is not None:
        dim = header.fields.whole("dim")
    packed = rows.dtype == "U8"
    width = -(-dim // 2) if packed else dim
    width = width if rows.shape[0] else rows.shape[1]  # of no rows, any
    wanted = {
        "keys": (("I64",), (rows.shape[0],)),
        "rows": (
            ("U8",) if packed else ("I8",) if rows.dtype == "I8" else _FLOATS,
            (rows.shape[0], width),
        ),
        "scales": (("F32",), (rows.shape[0],)),
        "extra_keys": (("I64",), (2,)),
        "extra_rows": (_FLOATS, (2, dim)),
        "first_row": (_FLOATS, (1, dim)),
        "index_numbers": (("I64",), (5,)),
    }
    for name, (dtypes, shape) in wanted.items():
        found = header.tensors.get(name)
        if found and (found.dtype not in dtypes or found.shape != shape):
            problem = f"'{name}' is {found.dtype}{list(found.shape)}"
            expected = f"{' or '.join(dtypes)}{list(shape)}"
            raise DamagedFileError(header.path, f"{problem}, not {expected}")
    if rows.dtype in ("I8", "U8") and rows.shape[0] and "scales" not in tensors:
        raise DamagedFileError(header.path, "it has integer rows but no 'scales'")
    return dim


def check_keys(path: Path, name: str, keys: torch.Tensor) -> None:
    """Checks that keys, int64[n], ascend and that none is reserved.

    Raises:
      DamagedFileError: they do not.
    """
    first, last = _RESERVED
    for begin in range(0, len(keys), _PIECE):
        some = keys[begin : begin + _PIECE + 1]  # one of the next, too
        if not (some[1:] > some[:-1]).all():
            raise DamagedFileError(path, f"its '{name}' do not ascend")
        if ((some >= first) & (some <= last)).any():
            problem = f"its '{name}' hold one of the reserved keys -4 to -1"
            raise DamagedFileError(path, problem)


def check_index(header: Header, index: PerfectHash, keys: torch.Tensor) -> None:
    """Checks that a hash stays inside of its arrays, and leads to every key.

    A file with checksums has the index that was written; the keys of others are
    looked up, once.

    Args:
      header: of the file.
      index: its hash.
      keys: int64[n + 2].

    Raises:
      DamagedFileError: it does not.
    """
    multiplier, bits, group_bits, shift, kind = index.numbers.tolist()
    tensors = [header.tensor(f"index_{name}") for name in ("words", "pilots")]
    # A table of a few keys has more groups than slots.
    bounded = max(bits, group_bits) <= _MOST_BITS and min(bits, group_bits) >= 0
    shapes = [(1 << bits,), (1 << group_bits,)] if bounded else []
    right = (
        bounded
        and 0 <= shift < 64
        and kind in (PLAIN, FOLDED, MIXED)
        and multiplier % 2
        and [each.dtype for each in tensors] == ["I64", "U8"]
        and [each.shape for each in tensors] == shapes
    )
    if not right:
        numbers = index.numbers.tolist()
        raise DamagedFileError(header.path, f"its index does not fit its {numbers}")
    if header.sums is not None:
        return
    steps, last = steps_of(index.numbers), len(keys)
    for begin in range(0, len(keys), _PIECE):
        some = keys[begin : begin + _PIECE]
        places = find(some, steps, index.words, index.pilots, last)
        expected = torch.arange(begin + 1, begin + 1 + len(some))
        if not torch.equal(places, expected):
            raise DamagedFileError(header.path, "its index does not lead to its keys")
