# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A safetensors file whose sizes are known first, and the manifest that names it.

The library's own writers want whole tensors in memory. Checksums are added up while
tensors are written, and put into the header at last (``tensor_header.py``).
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from jax_dynemb._src.files.disk import RunningSums, new_file, write_json
from jax_dynemb._src.files.integrity import (
    CHECKSUMS,
    DIGITS,
    FORMAT_VERSION,
    METADATA_KEY,
    NO_SUM,
    SUMS_KEY,
    blocks,
    header_sum,
    manifest_path,
    sum_of_json,
)
from jax_dynemb._src.files.safetensors.tensors import NAMES

_ALIGNMENT = 64  # of the first tensor


class TensorFile:
    """Writes one file; then ``link`` is what a delta names it by.

    ``tensors`` has dtype and shape by name in the file's order: wide types first, so
    that each is aligned. ``fields`` is what the file says of its table.
    """

    link: str

    def __init__(
        self,
        path: Path,
        tensors: Mapping[str, tuple[np.dtype, tuple[int, ...]]],
        fields: Mapping[str, Any],
    ):
        self._places: dict[str, tuple[int, int]] = {}
        entries: dict[str, object] = {}
        end = 0
        for name, (dtype, shape) in tensors.items():
            begin, end = end, end + math.prod(shape) * np.dtype(dtype).itemsize
            self._places[name] = (begin, end)
            entries[name] = {
                "dtype": NAMES[np.dtype(dtype)],
                "shape": list(shape),
                "data_offsets": [begin, end],
            }
        count = sum(len(blocks(*place)) for place in self._places.values())
        metadata = {
            METADATA_KEY: json.dumps({**fields, "checksums": CHECKSUMS}),
            SUMS_KEY: NO_SUM * (1 + count),
        }
        text = json.dumps({"__metadata__": metadata} | entries, separators=(",", ":"))
        mark = f'"{SUMS_KEY}":"'
        self._sums_at = text.encode().index(mark.encode()) + len(mark)
        self._text = text.encode() + b" " * (-(len(text.encode()) + 8) % _ALIGNMENT)
        self._path, self._first = path, 8 + len(self._text)
        self._sums = {name: RunningSums() for name in self._places}
        self._file = path.open("wb")
        try:
            self._file.write(len(self._text).to_bytes(8, "little") + self._text)
            self._file.truncate(self._first + end)
        except BaseException:
            with contextlib.suppress(OSError):  # it may be that of the disk, again
                self._file.close()
            raise

    def append(self, name: str, array: np.ndarray) -> None:
        """Writes the next bytes of a tensor."""
        begin, end = self._places[name]
        cursor = begin + self._sums[name].size
        if cursor + array.nbytes > end:
            raise ValueError(f"{self._path}: more of '{name}' than its shape says")
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        self._file.seek(self._first + cursor)
        self._file.write(data)
        self._sums[name].add(data)

    def _write_sums(self) -> None:
        for name, (begin, end) in self._places.items():
            if self._sums[name].size != end - begin:
                raise ValueError(f"{self._path}: '{name}' is not complete")
        sums = [each for name in self._places for each in self._sums[name].sums]
        digits = NO_SUM + "".join(f"{each:08x}" for each in sums)
        at = self._sums_at
        text = self._text[:at] + digits.encode() + self._text[at + len(digits) :]
        self.link = header_sum(text, at)
        self._file.seek(8 + at)
        self._file.write((self.link + digits[DIGITS:]).encode())

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._write_sums()
        finally:
            self._file.close()


def write_manifest(folder: Path, table: str, base: str, newest: str, link: str) -> None:
    """Names the newest file of a table, and links to it and to the base."""
    body = {
        "format_version": FORMAT_VERSION,
        "table": table,
        "base": base,
        "newest": newest,
        "link": link,
    }
    with new_file(manifest_path(folder, table)) as draft:
        write_json(draft, body | {"crc32": sum_of_json(body)})
