# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The tensors of a safetensors file as arrays, and the formats that rows have there.

Rows are floats, or small integers with a scale a row; they are read range by range.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.files.disk import disk_errors
from jax_dynemb._src.files.integrity import DamagedFileError, Header
from jax_dynemb._src.row_formats import dtype_name, scaled_codes

_DTYPES = {
    "F32": np.dtype(np.float32),
    "BF16": np.dtype(jnp.bfloat16),
    "F16": np.dtype(np.float16),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    # Of dense parameters only:
    "F64": np.dtype(np.float64),
    "U64": np.dtype(np.uint64),
    "U32": np.dtype(np.uint32),
    "I16": np.dtype(np.int16),
    "U16": np.dtype(np.uint16),
    "BOOL": np.dtype(np.bool_),
}
NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_FIRST_RESERVED, _LAST_RESERVED = -4, -1


def read_tensor(
    header: Header, name: str, first: int = 0, last: int | None = None
) -> np.ndarray:
    """Reads a tensor, or some rows of it; DamagedFileError if it became shorter."""
    tensor = header.tensor(name)
    dtype = _DTYPES[tensor.dtype]
    rows, *rest = tensor.shape or (1,)
    last = rows if last is None else last
    width = math.prod(rest)
    begin = tensor.begin + first * width * dtype.itemsize
    count = (last - first) * width
    with disk_errors(header.path):
        found = np.fromfile(header.path, dtype, count, offset=begin)
    if len(found) < count:
        raise DamagedFileError(header.path, "it became shorter while it was read")
    return found.reshape((last - first, *rest) if tensor.shape else ())


def check_table(header: Header) -> tuple[int, int]:
    """Checks the tensors of a file with all rows; returns rows and columns."""
    fields = header.fields
    dim, stored = fields.whole("dim", 2**31), fields.text("dtype")
    form = FORMATS.get(stored)
    if form is None or dim == 0:
        problem = f"it has rows of {dim} columns and the dtype {stored!r}"
        raise DamagedFileError(header.path, problem)
    keys = check_tensor(header, "keys", ("I64",), None)
    kind = NAMES[np.dtype(form.dtype)]
    check_tensor(header, "rows", (kind,), keys, form.width(dim))
    if form.levels:
        check_tensor(header, "scales", ("F32",), keys)
    check_keys(header, "keys")
    return keys, dim


def check_delta(header: Header, dim: int) -> None:
    """Checks a delta's tensors: shapes, dtypes, ascending keys, none in both lists."""
    keys = check_tensor(header, "keys", ("I64",), None)
    check_tensor(header, "rows", ("F32",), keys, dim)
    changed = check_keys(header, "keys")
    if "removed" in header.tensors:
        check_tensor(header, "removed", ("I64",), None)
        removed = check_keys(header, "removed")
        if len(np.intersect1d(changed, removed, assume_unique=True)):
            problem = "it has a key that is changed and removed at once"
            raise DamagedFileError(header.path, problem)


def check_keys(header: Header, name: str) -> np.ndarray:
    """Reads keys, int64[n], which must ascend and be none of the reserved ones."""
    keys = read_tensor(header, name)
    if (keys[1:] <= keys[:-1]).any():
        raise DamagedFileError(header.path, f"its '{name}' do not ascend")
    if ((keys >= _FIRST_RESERVED) & (keys <= _LAST_RESERVED)).any():
        problem = f"its '{name}' have one of the reserved keys -4 to -1"
        raise DamagedFileError(header.path, problem)
    return keys


def check_tensor(
    header: Header, name: str, dtypes: tuple[str, ...], *shape: int | None
) -> int:
    """Returns a tensor's rows; refuses another dtype or shape, None being any size."""
    tensor = header.tensor(name)
    sizes = zip(tensor.shape, shape, strict=False)
    fits = len(tensor.shape) == len(shape)
    if (
        tensor.dtype not in dtypes
        or not fits
        or any(w not in (None, g) for g, w in sizes)
    ):
        wanted = f"{' or '.join(dtypes)}{[n if n is not None else 'n' for n in shape]}"
        problem = f"'{name}' is {tensor.dtype}{list(tensor.shape)}, not {wanted}"
        raise DamagedFileError(header.path, problem)
    return tensor.shape[0]


@dataclasses.dataclass(frozen=True)
class RowFormat:
    """One way to store rows."""

    name: str  # as users and files say it
    dtype: Any
    per_item: int = 1  # columns that share one item
    levels: int = 0  # the largest integer; 0 for floats, which need no scale

    def width(self, dim: int) -> int:
        """Items of a stored row."""
        return -(-dim // self.per_item)

    def encode(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns "rows" [n, width], and "scales" float32[n] if the format has them."""
        if not self.levels:
            return {"rows": rows.astype(self.dtype)}
        whole, scales = scaled_codes(rows, self.levels, np)
        return {"rows": self._pack(whole), "scales": scales}

    def _pack(self, whole: np.ndarray) -> np.ndarray:
        """Two columns a byte: an even one below, the next above, each plus eight."""
        if self.per_item == 1:
            return whole
        columns = np.full((len(whole), 2 * self.width(whole.shape[1])), 8, np.uint8)
        columns[:, : whole.shape[1]] = whole + 8
        return columns[:, ::2] | (columns[:, 1::2] << 4)


FORMATS = {
    each.name: each
    for each in (
        RowFormat("float32", np.float32),
        RowFormat("bfloat16", jnp.bfloat16),
        RowFormat("int8", np.int8, levels=127),
        RowFormat("int4", np.uint8, per_item=2, levels=7),
    )
}


def row_format(dtype: Any) -> RowFormat:
    """Returns the format of a dtype or its name; ValueError if it is none of four."""
    name = dtype_name(dtype)
    if name not in FORMATS:
        raise ValueError(f"dtype must be one of {list(FORMATS)}, not {dtype!r}")
    return FORMATS[name]
