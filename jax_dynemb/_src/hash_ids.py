# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Ids of strings, bytes and integers, from whatever container they lie in.

Each container becomes one of a few flat arrays without a loop over its values. The
loops are C++ (cpu/hash_ids.h); core/string_hash.h defines the hash.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ids import check_depth

_PADDING = -1
_ENDLESS = (itertools.count, itertools.cycle, itertools.repeat)
_PERSON = b"jde.hash_ids.v1"


class _Keys(NamedTuple):
    """Two words each: the keys of SipHash for text and for integers."""

    text: tuple[int, int]
    integer: tuple[int, int]


def hash_ids(values: Iterable[Any], salt: str | int = 0) -> np.ndarray:
    """Hashes strings, bytes or integers to stable 64-bit ids.

    SipHash-2-4 under a key that is made of the salt: the same ids on every machine and
    in every version. docs/api/ids.md defines it, and says what a secret salt is good
    for. Arrays are hashed on all cores, without the interpreter's lock.

    Args:
      values: str, bytes or int in any iterable. NumPy arrays of any shape (integers,
        "S", "U", object), pandas Series, Index or Categorical, Arrow arrays and
        nested lists are fast. Text and its UTF-8 bytes are equal; 5 and "5" are not.
        None, NaN and null are missing.
      salt: tells features apart that share a table: the same value under another
        salt is another id. 1 and "1" are one salt.

    Returns:
      int64 in the shape of ``values``; -1 where a value is missing, and never -1 to -4
      where one is present.

    Raises:
      MemoryError: more values than memory holds.
      TypeError: a single value, values of another type, or an endless iterator.
      ValueError: nested lists of unequal lengths, or a list that has itself in it.
    """
    keys = _keys(salt)
    if isinstance(values, jax.Array):
        raise TypeError(
            f"hash_ids takes numpy arrays, not a jax Array of dtype {values.dtype}: "
            "JAX may already have truncated 64-bit values. Hash before jnp.asarray."
        )
    if isinstance(values, np.ndarray):
        return _of_numpy(values, keys)
    package = type(values).__module__.partition(".")[0]
    if package == "pandas":
        return _of_pandas(values, keys)
    if package == "pyarrow" or hasattr(values, "__arrow_c_stream__"):
        return _of_arrow(values, keys)
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise TypeError(
            f"hash_ids takes many values; put a single one in a list: [{values!r}]"
        )
    return _of_sequence(values, keys)


@functools.lru_cache(maxsize=256)
def _keys_of_text(salt: str) -> _Keys:
    digest = hashlib.blake2b(salt.encode(), digest_size=32, person=_PERSON).digest()
    words = [int.from_bytes(digest[at : at + 8], "little") for at in range(0, 32, 8)]
    return _Keys((words[0], words[1]), (words[2], words[3]))


def _keys(salt: str | int) -> _Keys:
    if not isinstance(salt, (str, int, np.integer)):
        raise TypeError(
            f"salt must be a str or an int, not {type(salt).__name__}: "
            'hash_ids(values, salt="user").'
        )
    return _keys_of_text(salt if isinstance(salt, str) else str(int(salt)))


# ---- NumPy ---------------------------------------------------------------------------


def _of_numpy(array: np.ndarray, keys: _Keys) -> np.ndarray:
    flat = np.ascontiguousarray(array).reshape(-1)
    kind = array.dtype.kind
    if kind in "OT":
        return _of_objects(flat.tolist(), keys).reshape(array.shape)
    if kind not in "biuSU":
        raise TypeError(_not_hashable(array.dtype))
    if not array.dtype.isnative:
        flat = flat.astype(array.dtype.newbyteorder("="))
    if kind in "SU" and array.dtype.itemsize == 0:
        flat = flat.astype(kind + "1")
    loops = {"S": _of_bytes, "U": _of_text}
    return loops.get(kind, _of_integers)(flat, keys).reshape(array.shape)


def _of_integers(flat: np.ndarray, keys: _Keys) -> np.ndarray:
    ids = np.empty(len(flat), np.int64)
    if flat.dtype == np.uint64:
        _ffi.cpu_module().hash_uint64s(flat, keys.integer, ids)
    else:
        numbers = flat.astype(np.int64, copy=False)
        _ffi.cpu_module().hash_int64s(numbers, keys.integer, ids)
    return ids


def _of_bytes(flat: np.ndarray, keys: _Keys) -> np.ndarray:
    octets = flat.view(np.uint8).reshape(len(flat), flat.dtype.itemsize)
    return _of_fixed_bytes(octets, True, keys)


def _of_fixed_bytes(octets: np.ndarray, strips_zeros: bool, keys: _Keys) -> np.ndarray:
    ids = np.empty(len(octets), np.int64)
    _ffi.cpu_module().hash_fixed_bytes(octets, strips_zeros, keys.text, ids)
    return ids


def _of_text(flat: np.ndarray, keys: _Keys) -> np.ndarray:
    ids = np.empty(len(flat), np.int64)
    points = flat.view(np.uint32).reshape(len(flat), flat.dtype.itemsize // 4)
    bad = _ffi.cpu_module().hash_fixed_text(points, keys.text, ids)
    if bad >= 0:
        str(flat[bad]).encode()  # says which character it is
        raise ValueError(f"value {bad} is no text: {flat[bad]!r}")
    return ids


def _not_hashable(what: Any) -> str:
    message = f"hash_ids takes str, bytes or int, not {what}; "
    if "float" in str(what) or "double" in str(what):
        return message + (
            "a float holds integers up to 2**53 only. Convert with .astype('int64'); "
            "pandas makes floats of integers with missing values, and keeps them with "
            "dtype='Int64'."
        )
    return message + "convert other values with str() first."


# ---- Python's own --------------------------------------------------------------------


def _of_sequence(values: Iterable[Any], keys: _Keys) -> np.ndarray:
    flat = _listed(values)
    check_depth("hash_ids: the values", flat)
    shape = [len(flat)]
    while flat and isinstance(flat[0], (list, tuple, np.ndarray)):
        inner = len(flat[0])
        if not all(isinstance(x, type(flat[0])) and len(x) == inner for x in flat):
            raise ValueError(
                "the nested lists have unequal lengths. Hash each: [jde.hash_ids(bag) "
                "for bag in bags], which jde.Jagged.from_lists takes."
            )
        flat = [value for each in flat for value in each]
        shape.append(inner)
    return _of_objects(flat, keys).reshape(shape)


def _listed(values: Iterable[Any]) -> list[Any]:
    """Returns all values; refuses endless ones, and more than memory holds."""
    kind = type(values).__name__
    if isinstance(values, _ENDLESS) and operator.length_hint(values, -1) < 0:
        raise TypeError(
            f"hash_ids: the values are an itertools.{kind}, which never ends: take a "
            "part of it, itertools.islice(values, n)."
        )
    try:
        return list(values)
    except MemoryError as error:
        raise MemoryError(
            f"hash_ids: values of the type {kind} are more than memory holds: hash "
            "them in parts."
        ) from error


def _of_objects(values: list[Any], keys: _Keys) -> np.ndarray:
    ids = np.empty(len(values), np.int64)
    _ffi.cpu_module().hash_objects(tuple(values), *keys, _plain, ids)
    return ids


def _plain(value: Any) -> str | bytes | int | None:
    """Converts a value that is not exactly a str, bytes, None or a small int."""
    if isinstance(value, int):  # more than 64 bits: words of its two's complement
        words = (value if value >= 0 else ~value).bit_length() // 64 + 1
        return value.to_bytes(8 * words, "little", signed=True)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b"".join([value])
    if isinstance(value, (np.integer, np.bool_)):
        return int(value)
    if type(value).__name__ == "NAType":  # pandas.NA is neither equal nor unequal
        return None
    is_scalar = not hasattr(value, "__len__")
    if is_scalar and value != value:  # NaN and NaT are not equal to themselves
        return None
    raise TypeError(_not_hashable(type(value).__name__))


# ---- pandas and Arrow ----------------------------------------------------------------


def _of_pandas(values: Any, keys: _Keys) -> np.ndarray:
    array = getattr(values, "array", values)  # of a Series or an Index
    dtype = getattr(array, "dtype", None)
    if dtype is None:
        raise TypeError(
            "hash_ids takes a Series, an Index or an array of pandas, not a "
            f"{type(values).__name__}: hash its columns one by one."
        )
    if hasattr(array, "categories"):
        return _of_codes(array.codes, _of_pandas(array.categories, keys))
    if hasattr(dtype, "pyarrow_dtype") or getattr(dtype, "storage", "") == "pyarrow":
        return _of_arrow(array.__arrow_array__(), keys)
    if hasattr(dtype, "numpy_dtype") and hasattr(array, "isna"):
        numbers = array.to_numpy(dtype.numpy_dtype, na_value=0)
        return _without(np.asarray(array.isna()), _of_numpy(numbers, keys))
    return _of_numpy(array.to_numpy(), keys)


def _of_arrow(values: Any, keys: _Keys) -> np.ndarray:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise TypeError(
            f"hash_ids needs pyarrow for a {type(values).__name__}: pip install "
            "'jax-dynemb[parquet]', or give its to_numpy()."
        ) from error
    if not isinstance(values, (pa.Array, pa.ChunkedArray)):
        if hasattr(values, "columns"):
            raise TypeError(
                f"hash_ids takes one column, not a {type(values).__name__}: hash its "
                "columns one by one."
            )
        values = pa.chunked_array(values)
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    parts = [np.empty(0, np.int64), *(_of_chunk(each, keys) for each in chunks)]
    return np.concatenate(parts)


def _of_chunk(array: Any, keys: _Keys) -> np.ndarray:
    """int64[n] of one Arrow array, from its buffers."""
    import pyarrow as pa

    kind, types = array.type, pa.types
    if isinstance(array, pa.ExtensionArray):
        return _of_chunk(array.storage, keys)
    if len(array) == 0 or types.is_null(kind):
        return np.full(len(array), _PADDING)
    if types.is_dictionary(kind):
        codes = (
            array.indices.fill_null(-1) if array.indices.null_count else array.indices
        )
        codes = codes.to_numpy(zero_copy_only=False)
        return _of_codes(codes, _of_chunk(array.dictionary, keys))
    if types.is_boolean(kind):
        return _of_chunk(array.cast(pa.int8()), keys)
    if kind in (pa.string_view(), pa.binary_view()):
        return _of_chunk(array.cast(pa.large_binary()), keys)
    if types.is_integer(kind):
        dtype = kind.to_pandas_dtype()
        ids = _of_integers(_of_buffer(array, 1, dtype), keys)
    elif types.is_fixed_size_binary(kind) and not types.is_decimal(kind):
        octets = _of_buffer(array, 1, np.dtype((np.void, kind.byte_width)))
        ids = _of_fixed_bytes(
            octets.view(np.uint8).reshape(len(array), -1), False, keys
        )
    elif _offsets_of(kind) is not None:
        ids = _of_offsets(array, keys)
    else:
        raise TypeError(_not_hashable(f"Arrow's {kind}"))
    return _without(_is_null(array), ids) if array.null_count else ids


def _offsets_of(kind: Any) -> type[np.signedinteger] | None:
    from pyarrow import types

    if types.is_large_string(kind) or types.is_large_binary(kind):
        return np.int64
    return np.int32 if types.is_string(kind) or types.is_binary(kind) else None


def _of_offsets(array: Any, keys: _Keys) -> np.ndarray:
    dtype, data = _offsets_of(array.type), array.buffers()[2]
    offsets = _of_buffer(array, 1, dtype, more=1)
    octets = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    ids = np.empty(len(array), np.int64)
    _ffi.cpu_module().hash_between_offsets(octets, offsets, keys.text, ids)
    return ids


def _of_buffer(array: Any, number: int, dtype: Any, more: int = 0) -> np.ndarray:
    """The part of a buffer that belongs to an array, which may be a slice."""
    whole = np.frombuffer(array.buffers()[number], dtype)
    return whole[array.offset : array.offset + len(array) + more]


def _is_null(array: Any) -> np.ndarray:
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    first = array.offset
    valid = np.unpackbits(bits, count=first + len(array), bitorder="little")[first:]
    return valid == 0


def _of_codes(codes: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The ids of categories by code; code -1 is a missing value."""
    return np.append(ids, _PADDING)[codes]


def _without(missing: np.ndarray, ids: np.ndarray) -> np.ndarray:
    ids[missing] = _PADDING
    return ids
