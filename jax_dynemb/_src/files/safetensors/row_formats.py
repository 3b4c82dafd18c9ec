# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How rows are stored for serving: floats, or small integers with a scale a row."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.row_formats import dtype_name


@dataclasses.dataclass(frozen=True)
class RowFormat:
    """One way to store rows."""

    name: str  # as users and files say it
    dtype: Any
    per_item: int = 1  # columns that share one item
    levels: int = 0  # the largest integer; 0 for floats, which need no scale

    def width(self, dim: int) -> int:
        """Items of a stored row."""
        return -(-dim // self.per_item)

    def encode(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns "rows" [n, width], and "scales" float32[n] if the format has them."""
        if not self.levels:
            return {"rows": rows.astype(self.dtype)}
        wide = rows.astype(np.float32)
        scales = np.abs(wide).max(axis=1, initial=0.0) / np.float32(self.levels)
        safe = np.where(scales > 0, scales, np.float32(1))
        whole = np.rint(wide / safe[:, None]).astype(np.int8)
        return {"rows": self._pack(whole), "scales": scales}

    def _pack(self, whole: np.ndarray) -> np.ndarray:
        """Two columns a byte: an even one below, the next above, each plus eight."""
        if self.per_item == 1:
            return whole
        columns = np.full((len(whole), 2 * self.width(whole.shape[1])), 8, np.uint8)
        columns[:, : whole.shape[1]] = whole + 8
        return columns[:, ::2] | (columns[:, 1::2] << 4)


FORMATS = {
    each.name: each
    for each in (
        RowFormat("float32", np.float32),
        RowFormat("bfloat16", jnp.bfloat16),
        RowFormat("int8", np.int8, levels=127),
        RowFormat("int4", np.uint8, per_item=2, levels=7),
    )
}


def row_format(dtype: Any) -> RowFormat:
    """Returns the format of a dtype or its name; ValueError if it is none of four."""
    name = dtype_name(dtype)
    if name not in FORMATS:
        raise ValueError(f"dtype must be one of {list(FORMATS)}, not {dtype!r}")
    return FORMATS[name]
