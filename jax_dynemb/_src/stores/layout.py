# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How the rows of a table lie in bytes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.rows import Exported, Schema

_SCORE = np.dtype("<u8")
_STATE, _COUNT = np.dtype("<f4"), np.dtype("<i4")
_DTYPES = {
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}


@dataclasses.dataclass(frozen=True)
class Layout:
    """Places score, columns and optimizer states of a row in bytes.

    The score comes first (8 bytes), then the columns in the table's dtype, then the
    optimizer states in float32 or int32, sorted by name. Numbers are little-endian, and
    nothing lies between them.

    Attributes:
      schema: of the table.
      counts: names of the optimizer states that are int32.
    """

    schema: Schema
    counts: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: TableConfig | Schema | Layout) -> Layout:
        """Makes the layout of a table's rows.

        Raises:
          TypeError: it is no table.
          ValueError: its rows are not of floats.
        """
        if isinstance(table, Layout):
            return table
        counts: list[str] = []
        if isinstance(table, TableConfig):
            counts = [k for k, s in table.states.items() if s.dtype == "int32"]
            table = Schema.of(table)
        if not isinstance(table, Schema):
            raise TypeError(
                f"a store keeps rows of a jde.TableConfig, not of a "
                f"{type(table).__name__}: give it coll.tables[name]"
            )
        if table.param_dtype not in _DTYPES:
            raise ValueError(
                f"a store keeps rows of {', '.join(_DTYPES)}, not {table.param_dtype}"
            )
        return cls(table, tuple(sorted(counts)))

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Layout:
        """Reads what ``to_json`` wrote.

        Raises:
          TypeError: an entry has another type.
          ValueError: its rows are not of floats.
        """
        counts = tuple(sorted(fields.get("counts", ())))
        return cls(cls.of(Schema.from_json(fields)).schema, counts)

    def to_json(self) -> dict[str, Any]:
        """As a dict of lists, strings and numbers."""
        return self.schema.to_json() | {"counts": list(self.counts)}

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self._fields[-1][2]

    def pack(self, chunk: Exported) -> np.ndarray:
        """Makes bytes of rows: uint8[n, row_bytes].

        Args:
          chunk: the rows; a state that is missing becomes zeros.

        Raises:
          ValueError: rows or states have another shape or dtype than the table's.
        """
        packed = np.zeros((len(chunk.keys), self.row_bytes), np.uint8)
        given = {"score": chunk.scores, "row": chunk.rows}
        given |= {f"state {k}": v for k, v in chunk.optimizer_state.items()}
        for name, begin, end, dtype, shape in self._fields:
            if name in given:
                values = _checked(name, given[name], dtype, (len(chunk.keys), *shape))
                packed[:, begin:end] = values.view(np.uint8).reshape(-1, end - begin)
        return packed

    def unpack(self, keys: np.ndarray, packed: np.ndarray) -> Exported:
        """Makes rows of bytes.

        Args:
          keys: int64[n] or uint64[n].
          packed: uint8[n, row_bytes].
        """
        values = {
            name: np.ascontiguousarray(packed[:, begin:end])
            .view(dtype)
            .reshape(len(packed), *shape)
            for name, begin, end, dtype, shape in self._fields
        }
        states = {k: values[f"state {k}"] for k in self.schema.states}
        scores = values["score"]
        if self.schema.score_strategy == "customized" and not self.schema.score_bits:
            scores = scores >> np.uint64(32)  # as earlier versions wrote them
        return Exported(np.asarray(keys).view(np.int64), values["row"], scores, states)

    def rows(self, packed: np.ndarray) -> np.ndarray:
        """Reads the columns alone: param_dtype[n, dim]."""
        _, begin, end, dtype, _ = self._fields[1]
        return np.ascontiguousarray(packed[:, begin:end]).view(dtype)

    def check_same_table(self, other: Layout, where: str) -> None:
        """Raises unless both are of tables of one name, and of the same bytes.

        Args:
          other: what the store was made for.
          where: the store.

        Raises:
          ValueError: naming what differs.
        """
        self.check_same(other, where)
        ours, theirs = self.schema.name, other.schema.name
        if ours != theirs:
            raise ValueError(
                f"{where} keeps rows of table '{theirs}', not of '{ours}'. Give that "
                "table, or another place; jde.import_.from_store fills a table of "
                "another name with its rows."
            )

    def check_same(self, other: Layout, where: str) -> None:
        """Raises unless rows of both are the same bytes.

        Args:
          other: what the store was made for.
          where: the store.

        Raises:
          ValueError: naming what differs.
        """
        strategies = (self.schema.score_strategy, other.schema.score_strategy)
        of_any_score = strategies != ("customized", "customized")
        differs = [
            f"{name} {theirs} there, {ours} here"
            for (name, ours), theirs in zip(
                self._essence.items(), other._essence.values(), strict=True
            )
            if ours != theirs
            and not (name == "score_strategy" and "" in (ours, theirs))
            and not (name == "score_bits" and of_any_score)
        ]
        if differs:
            raise ValueError(
                f"{where} keeps rows of another table: {'; '.join(differs)}. Give the "
                "table that it was made for, or another place."
            )

    @property
    def _essence(self) -> dict[str, Any]:
        schema = self.schema
        return {
            "dim": schema.dim,
            "param_dtype": schema.param_dtype,
            "key_dtype": schema.key_dtype,
            "score_strategy": schema.score_strategy,
            "score_bits": schema.score_bits,
            "states": {k: tuple(v) for k, v in sorted(schema.states.items())},
            "counts": self.counts,
        }

    @functools.cached_property
    def _fields(self) -> list[tuple[str, int, int, np.dtype, tuple[int, ...]]]:
        """Name, first byte, last byte and one, dtype and shape of each part."""
        schema, at, fields = self.schema, 0, []
        states: Mapping[str, tuple[int, ...]] = schema.states
        parts = [
            ("score", _SCORE, ()),
            ("row", _DTYPES[schema.param_dtype], (schema.dim,)),
        ]
        for name in sorted(states):
            dtype = _COUNT if name in self.counts else _STATE
            parts.append((f"state {name}", dtype, tuple(states[name])))
        for name, dtype, shape in parts:
            size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
            fields.append((name, at, at + size, dtype, shape))
            at += size
        return fields


def _checked(name: str, values: Any, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
    array = np.asarray(values)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; the table's is {shape}")
    if array.dtype != dtype:
        raise ValueError(f"{name} is of {array.dtype}; the table's is {dtype}")
    return np.ascontiguousarray(array).reshape(-1)
