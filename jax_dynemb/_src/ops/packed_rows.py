# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Packs rows for serving: a scale a row and a code a column (core/packed_row.h)."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt8

from jax_dynemb._src.ffi import code
from jax_dynemb._src.row_formats import LARGEST_CODES
from jax_dynemb._src.spec import AnyTable, TableSpec

_TINY = float(np.finfo(np.float32).tiny)


def refuse_packed(tables: Iterable[AnyTable], op: str) -> None:
    """Refuses tables with packed rows where only those that train will do."""
    for table in tables:
        if table.row_format is not None:
            raise ValueError(
                f"Table '{table.name}' holds {table.row_format} rows for serving, "
                f"which only find reads: for {op} use the Tables and the state that "
                "jde.export.frozen was given, whose rows can be trained."
            )


def packed_attribute(tables: Iterable[TableSpec]) -> np.ndarray:
    """The attribute ``packed`` of tables whose rows are packed."""
    rows = [
        (
            code("row_codes", str(table.row_format)),
            table.dim,
            code("value_types", table.param_dtype),
        )
        for table in tables
    ]
    return np.array(rows, np.int64).reshape(-1)


@functools.partial(jax.jit, static_argnames="row_format")
def pack_rows(
    rows: Float[Array, "*n dim"], row_format: str
) -> UInt8[Array, "*n bytes"]:
    """Packs rows in one of ``ROW_FORMATS``, each with a scale of its own.

    The scale is the row's largest magnitude over the largest code, and a code is the
    nearest to column / scale, ties to even. A row whose scale would be zero or
    subnormal gets the scale 1 and zeros. A row with a number that is not finite gets
    the scale NaN, so all of it reads as NaN.
    """
    # XLA would multiply by the reciprocal of a constant, which rounds twice.
    largest = jax.lax.optimization_barrier(jnp.float32(LARGEST_CODES[row_format]))
    wide = rows.astype(jnp.float32)
    most = jnp.max(jnp.abs(wide), axis=-1, keepdims=True)
    scale = most / largest
    # What rounding has made too large would read as infinity.
    scale = jnp.where(jnp.isinf(scale * largest), scale * (1 - 2.0**-23), scale)
    is_zero, is_finite = most < largest * _TINY, jnp.isfinite(most)
    scale = jnp.where(is_zero, 1.0, jnp.where(is_finite, scale, jnp.nan))
    quotients = jnp.where(is_zero | ~is_finite, 0.0, wide / scale)
    codes = _codes(jnp.clip(quotients, -largest, largest), row_format)
    words = _padded(codes, -codes.shape[-1] % 4, 0)
    parts = [jax.lax.bitcast_convert_type(scale[..., 0], jnp.uint8), words]
    return jnp.concatenate(parts, axis=-1)


def _codes(quotients: jax.Array, row_format: str) -> jax.Array:
    if row_format == "float8_e4m3fn":
        codes = quotients.astype(jnp.float8_e4m3fn)
        return jax.lax.bitcast_convert_type(codes, jnp.uint8)
    whole = jnp.rint(quotients).astype(jnp.int8)
    if row_format == "int8":
        return jax.lax.bitcast_convert_type(whole, jnp.uint8)
    return _in_pairs((whole + 8).astype(jnp.uint8))


def _in_pairs(halves: jax.Array) -> jax.Array:
    """Joins an even column, below, and the next one; the last may have a zero, 8."""
    halves = _padded(halves, halves.shape[-1] % 2, 8)
    return halves[..., ::2] | (halves[..., 1::2] << 4)


def _padded(columns: jax.Array, count: int, value: int) -> jax.Array:
    widths = [(0, 0)] * (columns.ndim - 1) + [(0, count)]
    return jnp.pad(columns, widths, constant_values=value)
