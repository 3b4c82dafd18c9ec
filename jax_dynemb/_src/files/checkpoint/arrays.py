# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The arrays of a checkpoint, checked before they are believed, and read in parts."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.files.checkpoint.checksums import of_checkpoint
from jax_dynemb._src.files.checkpoint.layout import ITEM
from jax_dynemb._src.files.checkpoint.pieces import DESCRIPTION, Grid
from jax_dynemb._src.files.disk import library_errors
from jax_dynemb._src.files.integrity import DamagedFileError, file_bytes, read_json

_BFLOAT16 = "bfloat16"  # which NumPy alone does not know


class StoredArray:
    """Reads an array of a checkpoint by its path; DamagedFileError if it is damaged."""

    def __init__(self, step_directory: Path, name: str):
        # orbax writes a directory for each array; before, it wrote one store for all.
        item, array = step_directory / ITEM, name.replace("/", ".")
        self.path = item / array
        store = {"driver": "file", "path": f"{self.path}/"}
        with of_checkpoint():
            if self.path.is_dir():
                check_array(self.path)
            else:
                store = {"driver": "ocdbt", "base": f"file://{item}/"}
                store["path"] = f"{array}/"
            spec = {"driver": "zarr", "kvstore": store}
            if store["driver"] == "file":
                spec["fill_missing_data_reads"] = False  # zeros, otherwise
            with library_errors(self.path):
                self._array = _tensorstore().open(spec, read=True).result()
        self.shape: tuple[int, ...] = tuple(self._array.shape)
        self.dtype = np.dtype(self._array.dtype.numpy_dtype)

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk."""
        return self._array.chunk_layout.read_chunk.shape[0]

    def expect(self, dtype: str, *shape: int | None) -> None:
        """Refuses another dtype or shape with DamagedFileError; None is any size."""
        sizes = zip(self.shape, shape, strict=False)
        fits = len(shape) == len(self.shape) and all(w in (None, g) for g, w in sizes)
        if not fits or self.dtype != jnp.dtype(dtype):
            problem = (
                f"it is {self.dtype.name}{list(self.shape)}, but its table says "
                f"{dtype}{[each if each is not None else 'n' for each in shape]}"
            )
            with of_checkpoint():
                raise DamagedFileError(self.path / DESCRIPTION, problem)

    def read(self, first: int, last: int) -> Any:
        """Starts to read some rows; returns a function that waits for them."""
        future = self._array[first:last].read()

        def result() -> np.ndarray:
            with of_checkpoint(), library_errors(self.path):
                return future.result()

        return result


def check_array(path: Path, expected: np.dtype | None = None) -> Grid:
    """Refuses missing, compressed or odd chunks, and numbers of another dtype."""
    fields = read_json(path / DESCRIPTION)
    shape, chunks = fields.wholes("shape"), fields.wholes("chunks")
    dtype = fields.text("dtype")
    try:
        item_bytes = 2 if dtype == _BFLOAT16 else np.dtype(dtype).itemsize
    except TypeError:
        raise DamagedFileError(fields.path, f"its dtype is {dtype!r}") from None
    if expected is not None and expected.itemsize != item_bytes:
        raise DamagedFileError(fields.path, f"its dtype is {dtype!r}, not {expected}")
    plain = fields.get("compressor") is None and not fields.get("filters")
    if not plain or fields.get("order", "C") != "C" or fields.whole("zarr_format") != 2:
        raise DamagedFileError(fields.path, "it is not stored as plain rows")
    if len(shape) != len(chunks) or 0 in chunks or item_bytes == 0 or len(shape) > 8:
        problem = f"shape {shape} does not fit chunks {chunks}"
        raise DamagedFileError(fields.path, problem)
    size = math.prod(chunks) * item_bytes
    counts = [-(-s // c) for s, c in zip(shape, chunks, strict=True)]
    there = sum(1 for each in path.iterdir() if each.name != DESCRIPTION)
    if math.prod(counts) > there:
        problem = (
            f"{math.prod(counts) - there} of {math.prod(counts)} chunks are missing"
        )
        raise DamagedFileError(path, problem)
    separator = fields.get("dimension_separator", ".")
    if separator != "." and len(shape) > 1:
        raise DamagedFileError(fields.path, f"it separates axes by {separator!r}")
    for place in itertools.product(*map(range, counts)):
        name = ".".join(map(str, place)) or "0"
        found = file_bytes(path / name)
        if found != size:
            raise DamagedFileError(path / name, f"it has {found} bytes, not {size}")
    return Grid(tuple(shape), tuple(chunks))


def check_like(path: Path, like: Any) -> None:
    """Does the same, and compares shape and dtype where ``like`` is a plain array."""
    known = isinstance(like, jax.ShapeDtypeStruct | np.ndarray)
    if not known or jnp.issubdtype(like.dtype, jax.dtypes.extended):
        check_array(path)
        return
    shape = check_array(path, np.dtype(like.dtype)).shape
    if shape != like.shape:
        problem = f"it has the shape {list(shape)}, not {list(like.shape)}"
        raise DamagedFileError(path / DESCRIPTION, problem)


def _tensorstore() -> Any:
    try:
        import tensorstore
    except ImportError as error:
        raise ImportError(
            "Reading checkpoints needs tensorstore: pip install "
            "'jax-dynemb[checkpoint]'."
        ) from error
    return tensorstore
