# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The files of jax_dynemb.export: mapped into memory, not read."""

from __future__ import annotations

import dataclasses
import math
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from jax_dynemb_torch._integrity import (
    DamagedFileError,
    Fields,
    Header,
    read_delta_header,
    read_header,
    read_table_header,
    verify,
)
from jax_dynemb_torch._perfect_hash import PerfectHash
from jax_dynemb_torch._table import EXTRA_KEYS, Table
from jax_dynemb_torch._table_checks import check_index, check_keys, check_table

_INDEX = tuple(f"index_{name}" for name in PerfectHash._fields)
_DTYPES = {
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I8": torch.int8,
    "U8": torch.uint8,
    # Of dense parameters only:
    "F64": torch.float64,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "I16": torch.int16,
    "U16": torch.uint16,
    "BOOL": torch.bool,
}


@dataclasses.dataclass(frozen=True)
class TensorFile:
    """The tensors of one file.

    Attributes:
      header: what it says of itself.
      tensors: by name; on the CPU, and mapped. Each has a storage of its own, so that
        a program that saves one does not save the file.
      mapped: the whole file.
    """

    header: Header
    tensors: dict[str, torch.Tensor]
    mapped: mmap.mmap

    @property
    def path(self) -> Path:
        """Of the file."""
        return self.header.path

    @property
    def fields(self) -> Fields:
        """About the table."""
        return self.header.fields

    @property
    def until(self) -> int | None:
        """The first step whose rows may be missing."""
        return self.fields.get("until")

    @property
    def since(self) -> int | None:
        """Of a delta: rows of earlier steps are not in it."""
        return self.fields.get("since")

    @property
    def config(self) -> dict[str, Any]:
        """What the exporter knew about the table's use."""
        outer = self.fields.get("config")
        inner = outer.get("config") if isinstance(outer, dict) else None
        return inner if isinstance(inner, dict) else {}

    def joined(self, *names: str) -> torch.Tensor | None:
        """Tensors as one, if each follows the one before in the file; else None."""
        tensors = [self.tensors.get(name) for name in names]
        if any(tensor is None for tensor in tensors):
            return None
        first, *others = tensors
        places = self.header.tensors
        for before, name, tensor in zip(names, names[1:], others, strict=False):
            follows = places[before].end == places[name].begin
            if tensor.dtype != first.dtype or not follows:
                return None
        shape = (sum(map(len, tensors)), *first.shape[1:])
        return _tensor(self.mapped, first.dtype, shape, places[names[0]].begin)


def open_file(
    path: Path, *, delta: bool = False, dense: bool = False, check: bool = True
) -> TensorFile:
    """Maps a file.

    Args:
      path: of the file.
      delta: whether it should be a delta, not a whole table.
      dense: whether it has tensors of no table.
      check: read it once and compare it with its checksums.

    Raises:
      DamagedFileError: it is not a file of jax_dynemb, of a newer version, or not as it
        was written.
    """
    read = read_delta_header if delta else read_header if dense else read_table_header
    header = read(path)
    unknown = {t.dtype for t in header.tensors.values()} - _DTYPES.keys()
    if unknown:
        raise DamagedFileError(path, f"it has tensors of the dtypes {sorted(unknown)}")
    if check:
        verify(header)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    end = max((each.end for each in header.tensors.values()), default=0)
    if len(mapped) < end:
        raise DamagedFileError(path, "it became shorter while it was read")
    tensors = {
        name: _tensor(mapped, _DTYPES[each.dtype], each.shape, each.begin)
        for name, each in header.tensors.items()
    }
    return TensorFile(header, tensors, mapped)


def _tensor(
    mapped: mmap.mmap, dtype: torch.dtype, shape: Sequence[int], begin: int
) -> torch.Tensor:
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    if begin % dtype.itemsize:  # another program's file: copied, since not aligned
        data = bytearray(mapped[begin : begin + count * dtype.itemsize])
        return torch.frombuffer(data, dtype=dtype).view(shape)
    flat = torch.frombuffer(mapped, dtype=dtype, count=count, offset=begin)
    return flat.view(shape)


def load_table(file: TensorFile) -> Table:
    """A table over the mapped tensors of a file.

    Raises:
      DamagedFileError: tensors are missing or do not fit together.
    """
    tensors = file.tensors
    if missing := {"keys", "rows"} - tensors.keys():
        raise DamagedFileError(
            file.path,
            f"it has no tensor {sorted(missing)}",
            "Load what jax_dynemb.export.safetensors wrote, and give deltas to "
            "apply_delta.",
        )
    dim = check_table(file.header, tensors)
    check_keys(file.path, "keys", tensors["keys"])
    order = tensors.get("extra_keys", torch.tensor(EXTRA_KEYS)).tolist()
    if order != list(EXTRA_KEYS):
        raise DamagedFileError(
            file.path,
            f"it has the extra keys {order}, not {list(EXTRA_KEYS)}, as files of an "
            "older version",
            "Export the table again.",
        )
    extra = tensors.get("extra_rows", torch.zeros(2, dim))
    keys = file.joined("keys", "extra_keys")
    if keys is None:
        keys = torch.cat([tensors["keys"], torch.tensor(EXTRA_KEYS)])
    whole = file.joined("first_row", "rows", "extra_rows")
    index = None
    if tensors.keys() >= set(_INDEX):
        index = PerfectHash(*(tensors[name] for name in _INDEX))
        check_index(file.header, index, keys)
    return Table(
        keys=keys,
        rows=tensors["rows"] if whole is None else whole,
        extra_rows=extra.float(),
        scales=tensors.get("scales"),
        index=index,
    )
