# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""An exported program as bytes that show whether they are whole.

The format begins with a mark. The size of the program and a checksum of all that
follows come next, eight bytes each. Then come the bytes of ``jax.export``, and the
constraints on symbolic dimensions as JSON.

``jax.export`` stores no constraints, and then says no more than "Error refining shapes"
of a batch above its bound. What reads its flatbuffer does not notice damage, and may
end the process over it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence

import jax.export

from jax_dynemb._src.files.integrity import DamagedFileError

_MARK = b"jax_dynemb program 1\n"
_NUMBER = 8  # bytes of each
_ROOT, _LEAST = 2, 64  # a flatbuffer begins with a small offset
_FIX = "Export the program again, or copy it again from where it is whole."


def pack(program: bytes, constraints: Sequence[str]) -> bytes:
    """Join a program and the constraints on its symbolic dimensions."""
    body = program + json.dumps(list(constraints)).encode()
    numbers = (len(program), zlib.crc32(body))
    return b"".join([_MARK, *(n.to_bytes(_NUMBER, "little") for n in numbers), body])


def unpack(path: str, data: bytes) -> tuple[jax.export.Exported, list[str]]:
    """Reads what ``pack`` returned, or the bytes of ``jax.export`` alone."""
    if not data.startswith(_MARK):
        if data[_ROOT : _ROOT + 2] != b"\0\0" or len(data) < _LEAST:
            raise DamagedFileError(path, "it is no program of jax_dynemb", _FIX)
        return _deserialized(path, data), []
    first = len(_MARK) + 2 * _NUMBER
    head, body = data[len(_MARK) : first], data[first:]
    size, wanted = (
        int.from_bytes(part, "little") for part in (head[:_NUMBER], head[_NUMBER:])
    )
    if len(head) < 2 * _NUMBER or len(body) <= size:
        problem = f"it has {len(body)} bytes, and is to have more than {size}"
        raise DamagedFileError(path, problem, _FIX)
    if zlib.crc32(body) != wanted:
        problem = "its contents do not match their checksum"
        raise DamagedFileError(path, problem, _FIX)
    return _deserialized(path, body[:size]), json.loads(body[size:])


def _deserialized(path: str, data: bytes) -> jax.export.Exported:
    try:
        return jax.export.deserialize(bytearray(data))
    except ImportError:
        raise
    except Exception as error:  # flatbuffers raises whatever it meets
        text = f"{type(error).__name__}: {str(error)[:200]}"
        problem = f"it can not be read as a program ({text})"
        raise DamagedFileError(path, problem, _FIX) from error
