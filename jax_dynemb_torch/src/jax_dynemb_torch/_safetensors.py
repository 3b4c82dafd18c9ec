# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The files of jax_dynemb.export: mapped into memory, not read."""

from __future__ import annotations

import dataclasses
import json
import math
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from jax_dynemb_torch._perfect_hash import PerfectHash
from jax_dynemb_torch._table import EXTRA_KEYS, Table

FORMAT_VERSION = 1
_METADATA_KEY = "jax_dynemb"
_INDEX = tuple(f"index_{name}" for name in PerfectHash._fields)
_DTYPES = {
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I8": torch.int8,
    "U8": torch.uint8,
}


@dataclasses.dataclass(frozen=True)
class TensorFile:
    """The tensors of one file.

    Attributes:
      path: of the file.
      fields: what it says of itself.
      tensors: by name; on the CPU, and mapped. Each has a storage of its own, so that
        a program that saves one does not save the file.
      mapped: the whole file.
      begins: where a tensor begins in it, by name.
      ends: where a tensor ends.
    """

    path: Path
    fields: dict[str, Any]
    tensors: dict[str, torch.Tensor]
    mapped: mmap.mmap
    begins: dict[str, int]
    ends: dict[str, int]

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
        return self.fields.get("config", {}).get("config", {})

    def joined(self, *names: str) -> torch.Tensor | None:
        """Tensors as one, if each follows the one before in the file; else None."""
        tensors = [self.tensors.get(name) for name in names]
        if any(tensor is None for tensor in tensors):
            return None
        first, *others = tensors
        for before, name, tensor in zip(names, names[1:], others, strict=False):
            if tensor.dtype != first.dtype or self.ends[before] != self.begins[name]:
                return None
        shape = (sum(map(len, tensors)), *first.shape[1:])
        return _tensor(self.mapped, first.dtype, shape, self.begins[names[0]])


def open_file(path: Path) -> TensorFile:
    """Maps a file.

    Raises:
      ValueError: it is not a file of jax_dynemb, or of a newer version.
    """
    try:
        with safe_open(path, "pt") as library:  # checks every offset
            metadata = library.metadata() or {}
    except SafetensorError as error:
        raise ValueError(
            f"{path} is not a complete safetensors file ({error}). Export it again."
        ) from error
    fields = json.loads(metadata.get(_METADATA_KEY, "{}"))
    version = fields.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ValueError(
            f"{path} has format_version {version}; this jax_dynemb_torch reads "
            f"versions up to {FORMAT_VERSION}. Write it with jax_dynemb.export, or "
            "upgrade jax_dynemb_torch."
        )
    with path.open("rb") as file:
        first = 8 + int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(first - 8))
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    header.pop("__metadata__")
    begins = {name: first + each["data_offsets"][0] for name, each in header.items()}
    ends = {name: first + each["data_offsets"][1] for name, each in header.items()}
    tensors = {
        name: _tensor(mapped, _DTYPES[each["dtype"]], each["shape"], begins[name])
        for name, each in header.items()
    }
    return TensorFile(path, fields, tensors, mapped, begins, ends)


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
    """A table over the mapped tensors of a file."""
    tensors = file.tensors
    if missing := {"keys", "rows"} - tensors.keys():
        raise ValueError(
            f"{file.path} has no tensor {sorted(missing)}; load what "
            "jax_dynemb.export.safetensors wrote, and give deltas to apply_delta."
        )
    order = tensors.get("extra_keys", torch.tensor(EXTRA_KEYS)).tolist()
    if order != list(EXTRA_KEYS):
        raise ValueError(
            f"{file.path} has the extra keys {order}, not {list(EXTRA_KEYS)}: it is of "
            "an older version. Export the table again."
        )
    extra = tensors.get("extra_rows", torch.zeros(2, tensors["rows"].shape[1]))
    keys = file.joined("keys", "extra_keys")
    if keys is None:
        keys = torch.cat([tensors["keys"], torch.tensor(EXTRA_KEYS)])
    whole = file.joined("first_row", "rows", "extra_rows")
    index = None
    if tensors.keys() >= set(_INDEX):
        index = PerfectHash(*(tensors[name] for name in _INDEX))
    return Table(
        keys=keys,
        rows=tensors["rows"] if whole is None else whole,
        extra_rows=extra.float(),
        scales=tensors.get("scales"),
        index=index,
    )
