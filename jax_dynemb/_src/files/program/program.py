# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Programs that look tables up, as bytes for another process: ``jax.export``.

The bytes begin with a mark. The size of the program and a checksum of all that follows
come next, eight bytes each. Then come the bytes of ``jax.export``, and the constraints
on symbolic dimensions as JSON, since ``jax.export`` stores none. It then says no more
than "Error refining shapes" of a batch above its bound. What reads its flatbuffer does
not notice damage, and may end the process over it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.export

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.files.integrity import DamagedFileError, file_bytes
from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.ops import TableState, is_symbolic, largest
from jax_dynemb._src.tt import TTState

# A lookup of frozen tables and of cores makes these calls, on one device and on a mesh.
# jax.export keeps a list of the custom calls that JAX itself promises to keep; others
# have to be named.
_CUSTOM_CALLS = (
    "dynemb_distinct",
    "dynemb_find",
    "dynemb_find_packed",
    "dynemb_offsets_of_features",
    "dynemb_pair_rows",
    "dynemb_route",
    "dynemb_sum_rows",
)

jax.export.register_pytree_node_serialization(
    Jagged,
    serialized_name="jax_dynemb.Jagged",
    serialize_auxdata=lambda _: b"",
    deserialize_auxdata=lambda _: (),
)
for _type, _name in ((TableState, "TableState"), (TTState, "TTState")):
    jax.export.register_pytree_node_serialization(
        _type,
        serialized_name=f"jax_dynemb.{_name}",
        serialize_auxdata=lambda names: names[0].encode(),  # of its arrays, or ""
        deserialize_auxdata=lambda data: (bytes(data).decode(),),
    )


def program(
    function: Callable[..., Any],
    *arguments: Any,
    shapes: Any = None,
    constraints: Sequence[str] = (),
    platforms: Sequence[str] | None = None,
) -> bytes:
    """Traces a function that reads tables and returns it as bytes.

    The tables should be arguments (see ``frozen``): an array that the function closes
    over becomes a constant inside of the bytes.

    A batch of any size is a symbolic dimension, as ``jax.export`` has them: name it in
    ``shapes`` and bound it in ``constraints``. ``arguments`` may also be what
    ``jax.export.symbolic_args_specs`` made. A symbolic dimension is 1 or more; one
    that is written as "b - 1" may be 0. The size of the bags of a pooled feature is
    static, unless they are ``Jagged``, whose capacity and number of bags may both be
    symbolic. On a mesh all sizes are static.

    Args:
      function: uses ``Tables.find``; returns arrays. Not jitted.
      *arguments: examples of its arguments: dicts, lists and tuples of arrays and of
        ``Jagged``, and states of tables.
      shapes: symbolic shapes, as ``jax.export.symbolic_args_specs`` takes them: for
        each argument a string such as "b, ...", None for the example's shape, or a
        tree of these. In a string, "..." stands for the axes of the example. None if
        all sizes are those of the examples.
      constraints: on the names in ``shapes``, such as "b <= 4096".
      platforms: "cpu", "cuda"; the default platform if None.

    Returns:
      For ``load_program``. JAX reads it in later versions too, for as long as
      ``jax.export`` promises; ``jax_dynemb`` has to be installed there.

    Raises:
      ValueError: a size that must be static is symbolic, or a shape does not fit.

    Example:
      >>> data = jde.export.program(  # doctest: +SKIP
      ...     look_up, tables, ids, shapes=(None, "b, ..."), constraints=["b <= 4096"]
      ... )
    """
    if shapes is not None:
        arguments = jax.export.symbolic_args_specs(
            arguments, shapes, constraints=constraints
        )
    elif constraints:
        raise ValueError(
            f"constraints={list(constraints)} name symbolic dimensions, so shapes=... "
            "is needed too, such as shapes=(None, 'b, ...')."
        )
    check = jax.export.DisabledSafetyCheck.custom_call
    exported = jax.export.export(
        jax.jit(function),
        platforms=platforms,
        disabled_checks=[check(name) for name in _CUSTOM_CALLS],
    )(*arguments)
    limits = _limits(exported, constraints)
    return pack(bytes(exported.serialize()), limits)


def load_program(data: bytes | str | os.PathLike[str]) -> jax.export.Exported:
    """Reads what ``program`` returned; no code of the model is needed.

    Args:
      data: the bytes, or the path of a file with them.

    Returns:
      Its ``call`` takes arguments of the structure ``in_tree``, of the same dtypes and
      shapes. Where these are symbolic, it takes any size within the constraints, and
      raises ValueError otherwise. Jit it to keep what was compiled: once for each size.

    Raises:
      DamagedFileError: the bytes are not those that ``program`` returned.
    """
    _ffi.loaded()  # registers what the program calls
    path = "program (given as bytes)"
    if isinstance(data, str | os.PathLike):
        path, file = os.fspath(data), Path(data)
        if file.exists():  # and no device, that never ends
            file_bytes(file)
        data = file.read_bytes()
    exported, constraints = unpack(path, bytes(data))
    return _constrained(exported, constraints)


def _limits(exported: jax.export.Exported, given: Sequence[str]) -> list[str]:
    """Constraints on an exported program's dimensions, those of its scope included."""
    limits = dict.fromkeys(given)  # a set in order
    for aval in exported.in_avals:
        for size in aval.shape:
            if is_symbolic(size) and (most := largest(size)) is not None:
                limits[f"{size} <= {most}"] = None
    return list(limits)


def _constrained(
    exported: jax.export.Exported, constraints: list[str]
) -> jax.export.Exported:
    """The program with the constraints that it was exported with."""
    if not constraints:
        return exported
    scope = jax.export.SymbolicScope(constraints)

    def in_scope(aval: Any) -> Any:
        if not any(map(is_symbolic, aval.shape)):
            return aval
        text = ",".join(map(str, aval.shape))
        return aval.update(shape=jax.export.symbolic_shape(text, scope=scope))

    return dataclasses.replace(
        exported,
        in_avals=tuple(map(in_scope, exported.in_avals)),
        out_avals=tuple(map(in_scope, exported.out_avals)),
    )


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
