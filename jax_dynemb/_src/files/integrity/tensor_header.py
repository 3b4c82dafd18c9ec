# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the header of a safetensors file, and checks that its bytes are unaltered.

A file is eight bytes with the length of a JSON header, the header, and tensors without
gaps. The header's metadata have two entries of ours. ``jax_dynemb`` is JSON about the
table. ``jax_dynemb_crc32`` has eight hexadecimal digits for the header, in which these
digits are zeros. Eight more follow for each block of 32 MiB of each tensor, in the
file's order.
"""

from __future__ import annotations

import dataclasses
import math
import re
import zlib
from pathlib import Path
from typing import Any

from .errors import DamagedFileError
from .json import Fields, file_bytes, parse_json
from .sums import Advance, blocks, pool, sums_of

# Of a file whose index mixes all bits of a key (kind 2): a reader that
# does not know the kind would find no key.
MIXED_INDEX_VERSION = 2
METADATA_KEY = "jax_dynemb"
SUMS_KEY = "jax_dynemb_crc32"
CHECKSUMS = "crc32"  # what the field "checksums" says where SUMS_KEY is there too
DIGITS = 8  # of a checksum
_MOST_AXES = 8
NO_SUM = "0" * DIGITS
_MOST_BYTES = 1 << 24  # of a header
_OF_SIZE = {
    1: "BOOL U8 I8 F8_E4M3 F8_E5M2",
    2: "I16 U16 F16 BF16",
    4: "I32 U32 F32",
    8: "I64 U64 F64",
}
_ITEM_BYTES = {name: size for size, some in _OF_SIZE.items() for name in some.split()}


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Where a tensor lies in its file."""

    dtype: str  # as the format names it
    shape: tuple[int, ...]
    begin: int  # its first byte in the file
    end: int  # its last byte and one


@dataclasses.dataclass(frozen=True)
class Header:
    """Holds the header of a file."""

    path: Path
    fields: Fields  # about the table; empty if another program wrote the file
    tensors: dict[str, Tensor]  # by name, in the file's order
    # Of the blocks of all tensors, or None if the file has none.
    sums: tuple[int, ...] | None
    link: str  # of the header with all checksums: what a delta names the file before by

    @property
    def data_bytes(self) -> int:
        """Returns the size in bytes of all tensors."""
        return sum(tensor.end - tensor.begin for tensor in self.tensors.values())

    def tensor(self, name: str) -> Tensor:
        """Returns one tensor; DamagedFileError if there is none of this name."""
        if name not in self.tensors:
            raise DamagedFileError(self.path, f"it has no tensor '{name}'")
        return self.tensors[name]


def read_header(path: Path) -> Header:
    """Reads and checks a header; no number in it is believed before it is bounded."""
    size = file_bytes(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MOST_BYTES):
            problem = f"it is no safetensors file: {size} bytes, a header of {length}"
            raise DamagedFileError(path, problem)
        text = file.read(length)
    if len(text) < length:
        raise DamagedFileError(path, "it became shorter while it was read")
    header = parse_json(path, text)
    metadata = header.fields("__metadata__") if "__metadata__" in header else {}
    if any(not isinstance(value, str) for value in metadata.values()):
        raise DamagedFileError(path, "its metadata are not strings")
    tensors = _tensors(header, 8 + length, size)
    fields = parse_json(path, metadata.get(METADATA_KEY, "{}"))
    sums, link = _sums(path, text, tensors, metadata.get(SUMS_KEY))
    if sums is None and fields.get("checksums") is not None:
        raise DamagedFileError(path, "its checksums are missing")
    return Header(path, fields, tensors, sums, link)


def verify(header: Header, advance: Advance | None = None) -> None:
    """Compares all tensors with their checksums, if any, or raises DamagedFileError."""
    if header.sums is None:
        return
    ranges = [
        (header.path, *block)
        for tensor in header.tensors.values()
        for block in blocks(tensor.begin, tensor.end)
    ]
    with pool() as threads:
        found = sums_of(ranges, threads, advance)
        for (_, begin, end), wanted, is_ in zip(
            ranges, header.sums, found, strict=True
        ):
            if is_ != wanted:
                names = [n for n, t in header.tensors.items() if t.begin <= begin]
                problem = (
                    f"bytes {begin} to {end}, of '{names[-1]}', do not match their "
                    "checksum"
                )
                raise DamagedFileError(header.path, problem)


def header_sum(text: bytes, own: int) -> str:
    """The checksum of a header's text, whose own digits are at ``own``."""
    before, after = text[:own], text[own + DIGITS :]
    return f"{zlib.crc32(before + NO_SUM.encode() + after):08x}"


def _tensors(header: Fields, first: int, size: int) -> dict[str, Tensor]:
    path, tensors = header.path, {}
    for name in header:
        if name != "__metadata__":
            tensors[name] = _tensor(name, header.fields(name), first)
    # Empty tensors may begin where another one does.
    ordered = dict(
        sorted(tensors.items(), key=lambda each: (each[1].begin, each[1].end))
    )
    end = first
    for name, tensor in ordered.items():
        if tensor.begin != end:
            raise DamagedFileError(path, f"'{name}' does not begin where one ends")
        end = tensor.end
    if end != size:
        problem = f"it has {size} bytes, but its tensors end at {end}"
        raise DamagedFileError(path, problem)
    return ordered


def _tensor(name: str, fields: Fields, first: int) -> Tensor:
    dtype, shape = fields.text("dtype"), fields.wholes("shape")
    offsets = fields.wholes("data_offsets")
    if dtype not in _ITEM_BYTES or len(shape) > _MOST_AXES:
        problem = f"'{name}' has the dtype {dtype!r} and {len(shape)} axes"
        raise DamagedFileError(fields.path, problem)
    bytes_ = math.prod(shape) * _ITEM_BYTES[dtype]
    if len(offsets) != 2 or offsets[1] - offsets[0] != bytes_:
        problem = f"'{name}', {dtype}{shape}, has the offsets {offsets}"
        raise DamagedFileError(fields.path, problem)
    return Tensor(dtype, tuple(shape), first + offsets[0], first + offsets[1])


def _sums(
    path: Path, text: bytes, tensors: dict[str, Tensor], digits: Any
) -> tuple[tuple[int, ...] | None, str]:
    """Checksums of blocks and of the header; the header is compared with its own."""
    if digits is None:
        return None, f"{zlib.crc32(text):08x}"
    count = sum(len(blocks(each.begin, each.end)) for each in tensors.values())
    quoted = f'"{digits}"'.encode()
    well_formed = re.fullmatch("[0-9a-f]*", digits) and text.count(quoted) == 1
    if not well_formed or len(digits) != DIGITS * (1 + count):
        raise DamagedFileError(path, "its checksums are not those of its tensors")
    link = header_sum(text, text.index(quoted) + 1)
    if link != digits[:DIGITS]:
        raise DamagedFileError(path, "its header does not match its checksum")
    rest = range(DIGITS, len(digits), DIGITS)
    return tuple(int(digits[at : at + DIGITS], 16) for at in rest), link
