# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A safetensors file whose sizes are known first and whose bytes come piece by piece.

The library's own writers want whole tensors in memory. The format is small: eight
bytes with the length of a JSON header, the header, and the tensors without gaps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import jax.numpy as jnp
import numpy as np

_NAMES = {
    np.dtype(np.float32): "F32",
    np.dtype(jnp.bfloat16): "BF16",
    np.dtype(np.float16): "F16",
    np.dtype(np.int64): "I64",
    np.dtype(np.int32): "I32",
    np.dtype(np.int8): "I8",
    np.dtype(np.uint8): "U8",
}
_ALIGNMENT = 64  # of the first tensor


class TensorFile:
    """Writes one file.

    Args:
      path: of a new file.
      tensors: dtype and shape by name, in the order of the file. Put wide types first,
        so that every tensor is aligned to its items.
      metadata: strings by name.
    """

    def __init__(
        self,
        path: Path,
        tensors: Mapping[str, tuple[np.dtype, tuple[int, ...]]],
        metadata: Mapping[str, str],
    ):
        self._places: dict[str, tuple[int, int]] = {}
        header: dict[str, object] = {"__metadata__": dict(metadata)}
        end = 0
        for name, (dtype, shape) in tensors.items():
            begin, end = end, end + math.prod(shape) * np.dtype(dtype).itemsize
            self._places[name] = (begin, end)
            header[name] = {
                "dtype": _NAMES[np.dtype(dtype)],
                "shape": list(shape),
                "data_offsets": [begin, end],
            }
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-(len(text) + 8) % _ALIGNMENT)
        self._path, self._first = path, 8 + len(text)
        self._file = path.open("wb")
        self._file.write(len(text).to_bytes(8, "little") + text)
        self._file.truncate(self._first + end)
        self._cursors = {name: begin for name, (begin, _) in self._places.items()}

    def append(self, name: str, array: np.ndarray) -> None:
        """Writes the next bytes of a tensor."""
        cursor, end = self._cursors[name], self._places[name][1]
        if cursor + array.nbytes > end:
            raise ValueError(f"{self._path}: more of '{name}' than its shape says")
        self._file.seek(self._first + cursor)
        self._file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        self._cursors[name] = cursor + array.nbytes

    def read(self, name: str, dtype: np.dtype) -> np.ndarray:
        """A tensor that has been written, with one axis, mapped and not read."""
        self._file.flush()
        begin, end = self._places[name]
        shape = ((end - begin) // np.dtype(dtype).itemsize,)
        return np.memmap(self._path, dtype, "r", self._first + begin, shape)

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        if kind is None:
            for name, (_, end) in self._places.items():
                if self._cursors[name] != end:
                    raise ValueError(f"{self._path}: '{name}' is not complete")
