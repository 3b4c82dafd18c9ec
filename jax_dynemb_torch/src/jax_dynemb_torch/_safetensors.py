# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The files of jax_dynemb.export: mapped into memory, not read."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from jax_dynemb_torch._table import EXTRA_KEYS, Table

FORMAT_VERSION = 1
_METADATA_KEY = "jax_dynemb"
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
      tensors: by name; on the CPU, and mapped.
    """

    path: Path
    fields: dict[str, Any]
    tensors: dict[str, torch.Tensor]

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

    def joined(self, first: str, second: str) -> torch.Tensor | None:
        """Two tensors as one, if one follows the other in the file; else None."""
        a, b = self.tensors[first], self.tensors[second]
        adjacent = a.data_ptr() + a.nbytes == b.data_ptr()
        same = a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
        if not (same and adjacent and a.dtype == b.dtype):
            return None
        shape = (len(a) + len(b), *a.shape[1:])
        return a.as_strided(shape, a.stride(), a.storage_offset())


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
            f"{path} has format_version {version}; this jax_dynemb_torch reads versions "
            f"up to {FORMAT_VERSION}. Write it with jax_dynemb.export, or upgrade "
            "jax_dynemb_torch."
        )
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    storage = torch.UntypedStorage.from_file(str(path), False, path.stat().st_size)
    tensors = {
        name: _tensor(storage, 8 + length, entry)
        for name, entry in header.items()
        if name != "__metadata__"
    }
    return TensorFile(path, fields, tensors)


def _tensor(
    storage: torch.UntypedStorage, first: int, entry: dict[str, Any]
) -> torch.Tensor:
    dtype = _DTYPES[entry["dtype"]]
    begin, end = (first + offset for offset in entry["data_offsets"])
    if begin % dtype.itemsize:  # another program's file: copied, since not aligned
        view = torch.tensor([], dtype=torch.uint8).set_(storage)[begin:end].clone()
        return view.view(dtype).view(entry["shape"])
    return torch.tensor([], dtype=dtype).set_(
        storage, begin // dtype.itemsize, entry["shape"]
    )


def load_table(file: TensorFile) -> Table:
    """A table over the mapped tensors of a file."""
    tensors = file.tensors
    if missing := {"keys", "rows"} - tensors.keys():
        raise ValueError(
            f"{file.path} has no tensor {sorted(missing)}; load what "
            "jax_dynemb.export.safetensors wrote, and give deltas to apply_delta."
        )
    if "extra_rows" not in tensors:
        tensors["extra_rows"] = torch.zeros(2, tensors["rows"].shape[1])
        tensors["extra_keys"] = torch.tensor(EXTRA_KEYS)
    keys = file.joined("keys", "extra_keys")
    if keys is None:
        keys = torch.cat([tensors["keys"], tensors["extra_keys"]])
    whole = file.joined("rows", "extra_rows")
    index = None
    if "index_slots" in tensors:
        index = (tensors["index_multipliers"], tensors["index_slots"])
    return Table(
        keys=keys,
        rows=tensors["rows"] if whole is None else whole,
        extra_rows=tensors["extra_rows"].float(),
        scales=tensors.get("scales"),
        index=index,
    )
