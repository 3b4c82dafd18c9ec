# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One table as the files of a DynamicEmb dump."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jax_dynemb._src.engines.shard import PACKED
from jax_dynemb._src.files.disk import Background, RunningSums
from jax_dynemb._src.files.dynamicemb.buckets import lossless_capacity
from jax_dynemb._src.files.dynamicemb.format import (
    COUNTER_FREQUENCIES,
    COUNTER_KEYS,
    DTYPES,
    EVICT_STRATEGY,
    KEYS,
    OPTIMIZERS,
    SCORE_COLUMNS,
    SCORES,
    STATES,
    UPDATES,
    VALUES,
    file_name,
    is_reserved,
    json_name,
)
from jax_dynemb._src.rows import (
    SKETCH_HAS_NO_IDS,
    Exported,
    StoredTable,
    fmix64,
    use_counts,
)


@dataclasses.dataclass(frozen=True)
class DynamicEmbReport:
    """Reports what was written of one table.

    Attributes:
      rows: in the files.
      num_embeddings: the smallest that DynamicEmb's inference loader must be given to
        keep every row, see ``dynamicemb``.
      notes: sentences about what a reader should know.
    """

    rows: int
    num_embeddings: int
    notes: tuple[str, ...]


class TableWriter:
    """Writes the files of one table."""

    def __init__(
        self,
        table: StoredTable,
        optimizer: bool,
        ranks: int,
        dist_type: str,
        now: int,
        counter: tuple[np.ndarray, np.ndarray] | None,
        columns: tuple[str, ...] | None = None,
    ):
        self._table = table
        self._name = table.schema.name
        self._optimizer = optimizer
        self._ranks = ranks
        self._dist_type = dist_type
        self._now = now
        self._counter = counter
        self._columns = columns  # of a compound strategy
        self._rows = 0
        self._reserved = 0
        self._raised = 0  # scores of 0, written as 1
        self._highest = 0
        self._sums: dict[str, RunningSums] = {}

    @property
    def entries(self) -> dict[str, Any]:
        """Sizes and checksums of the large files, by name."""
        return {name: each.entry for name, each in self._sums.items()}

    def write(self, directory: Path, advance: Any) -> DynamicEmbReport:
        """Writes every file of the table."""
        kinds = [KEYS, VALUES, SCORES]
        if self._optimizer:
            kinds.append(STATES)
        with contextlib.ExitStack() as stack:
            outputs = {kind: self._open(stack, directory, kind) for kind in kinds}
            background = stack.enter_context(Background())
            for chunk in self._table.chunks():
                background(self._write_chunk, outputs, self._arrays(chunk))
                advance(len(chunk.keys))
        if self._counter is not None:
            self._write_counter(directory)
        text = json.dumps(self._metadata(), indent=4)
        (directory / json_name(self._name)).write_text(text, encoding="utf-8")
        capacity = lossless_capacity(lambda: self._keys(directory), self._rows)
        return DynamicEmbReport(self._rows, capacity, tuple(self._notes()))

    def _open(
        self, stack: contextlib.ExitStack, directory: Path, kind: str
    ) -> list[BinaryIO]:
        names = [self._file(kind, rank) for rank in range(self._ranks)]
        self._sums |= {name: RunningSums() for name in names}
        return [stack.enter_context((directory / n).open("wb")) for n in names]

    def _file(self, kind: str, rank: int) -> str:
        return file_name(self._name, kind, rank, self._ranks)

    def _arrays(self, chunk: Exported) -> dict[str, np.ndarray]:
        """Returns the arrays of a chunk that go into the files, by kind."""
        reserved = is_reserved(chunk.keys)
        self._reserved += int(reserved.sum())
        arrays = {
            KEYS: chunk.keys,
            VALUES: chunk.rows.astype(np.float32, copy=False),
            SCORES: self._score_columns(chunk.scores),
            STATES: self._states(chunk),
        }
        if reserved.any():
            arrays = {kind: array[~reserved] for kind, array in arrays.items()}
        self._rows += len(arrays[KEYS])
        return arrays

    def _score_columns(self, scores: np.ndarray) -> np.ndarray:
        if self._columns is None:
            return self._scores(scores)
        clock = self._table.counters.get("clock", 0)
        age = np.uint32(clock & 0xFFFF_FFFF) - scores.astype(np.uint32)  # wraps
        times = self._now - age.astype(np.int64)
        words = {"timestamp": times, "lfu": self._scores(scores)}
        return np.stack([words[name] for name in self._columns], axis=1)

    def _scores(self, scores: np.ndarray) -> np.ndarray:
        """As DynamicEmb counts them; never 0, which its inference loader drops."""
        strategy = self._table.schema.score_strategy
        if strategy == "no_eviction":  # the number of the row
            return np.arange(len(scores), dtype=np.int64) + self._rows + 1
        halflife = self._table.schema.lfu_halflife
        if halflife:
            clock = self._table.counters.get("clock", 0)
            counts = np.rint(use_counts(scores, halflife, clock))
            scores = np.maximum(counts, 1).astype(np.uint64)
        elif strategy in PACKED:
            scores = scores >> np.uint64(32)
        result = scores.view(np.int64)
        if strategy == "timestamp":  # an age
            return 1 + np.maximum(0, self._now - result)
        self._raised += int((result < 1).sum())
        result = np.maximum(1, result)
        self._highest = max(self._highest, int(result.max(initial=0)))
        return result

    def _states(self, chunk: Exported) -> np.ndarray:
        rows = len(chunk.keys)
        if not self._optimizer:
            return np.empty((rows, 0), np.float32)
        _, names, _ = OPTIMIZERS[self._table.schema.optimizer["kind"]]
        parts = [chunk.optimizer_state[name].reshape(rows, -1) for name in names]
        return np.concatenate([np.empty((rows, 0), np.float32), *parts], axis=1)

    def _write_chunk(
        self, outputs: dict[str, list[BinaryIO]], arrays: dict[str, np.ndarray]
    ) -> None:
        owner = self._owner(arrays[KEYS])
        for kind, of_ranks in outputs.items():
            for rank, output in enumerate(of_ranks):
                mine = arrays[kind] if owner is None else arrays[kind][owner == rank]
                flat = np.ascontiguousarray(mine, DTYPES[kind]).reshape(-1)
                data = flat.view(np.uint8).data
                output.write(data)
                self._sums[self._file(kind, rank)].add(data)

    def _owner(self, keys: np.ndarray) -> np.ndarray | None:
        """The rank of each key; None if there is one rank only."""
        if self._ranks == 1:
            return None
        power_of_two = self._ranks & (self._ranks - 1) == 0
        if not power_of_two and (keys < 0).any():
            raise ValueError(
                f"Table '{self._name}' has negative keys, which DynamicEmb loses when "
                f"it reads files of {self._ranks} ranks. Use ranks=1, or a power of "
                "two."
            )
        plain = self._dist_type == "roundrobin"
        spread = keys.view(np.uint64) if plain else fmix64(keys)
        return spread % np.uint64(self._ranks)

    def _write_counter(self, directory: Path) -> None:
        assert self._counter is not None
        keys, frequencies = (np.asarray(x, np.int64) for x in self._counter)
        if keys.shape != frequencies.shape or keys.ndim != 1:
            raise ValueError(
                f"Table '{self._name}': counters must be two int64[m] arrays, not "
                f"{keys.shape} and {frequencies.shape}."
            )
        owner = self._owner(keys)
        pairs = {COUNTER_KEYS: keys, COUNTER_FREQUENCIES: frequencies}
        for kind, array in pairs.items():
            for rank in range(self._ranks):
                mine = array if owner is None else array[owner == rank]
                data = mine.astype(DTYPES[kind]).tobytes()
                (directory / self._file(kind, rank)).write_bytes(data)

    def _metadata(self) -> dict[str, Any]:
        schema = self._table.schema
        result: dict[str, Any] = {}
        if schema.optimizer.get("kind") in OPTIMIZERS:
            kind, _, names = OPTIMIZERS[schema.optimizer["kind"]]
            if self._optimizer:
                result["opt_type"] = kind
            given = schema.optimizer
            numbers = {k: float(given.get(v) or 0.0) for k, v in names.items()}
            result["lr"] = numbers.pop("lr")
            if kind == "adam":
                result["iters"] = self._table.counters.get("step", 0)
            result |= numbers
        strategy = schema.score_strategy or "step"
        more: dict[str, Any] = {UPDATES: self._table.counters.get("step", 0)}
        if self._columns is not None:
            more[SCORE_COLUMNS] = list(self._columns)
        return result | {
            "evict_strategy": EVICT_STRATEGY[strategy],
            "dist_type": self._dist_type,
            "step_score": self._step_score(strategy),
            **more,
        }

    def _step_score(self, strategy: str) -> int:
        """Returns the score that DynamicEmb continues with."""
        if strategy == "step":
            return max(self._table.counters.get("clock", 0), self._highest) + 1
        return {"lfu": 1, "customized": self._highest}.get(strategy, 0)

    def _keys(self, directory: Path) -> Iterator[np.ndarray]:
        """The keys again, from the files."""
        for rank in range(self._ranks):
            path = directory / self._file(KEYS, rank)
            count = path.stat().st_size // 8
            for start in range(0, count, 1 << 20):
                some = min(1 << 20, count - start)
                yield np.fromfile(path, "<i8", count=some, offset=8 * start)

    def _notes(self) -> Iterator[str]:
        schema = self._table.schema
        if self._reserved:
            yield f"{self._reserved} keys from -4 to -1 were left out: reserved."
        if self._raised:
            yield f"{self._raised} scores of 0 were written as 1."
        if self._counter is None and self._table.sketch is not None:
            yield SKETCH_HAS_NO_IDS
        if schema.param_dtype != "float32":
            yield f"rows are {schema.param_dtype} in the table, float32 in the files."
        if "learning_rate" in schema.optimizer and (
            schema.optimizer["learning_rate"] is None
        ):
            yield "the learning rate is a schedule and was written as 0."
