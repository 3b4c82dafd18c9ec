# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A reader of DynamicEmb dumps: finds the files, checks them, yields the rows."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jax_dynemb.stored._dynamicemb_format import (
    BLOCK_ROWS,
    COUNTER_FREQUENCIES,
    COUNTER_KEYS,
    DTYPES,
    KEYS,
    OPTIMIZERS,
    OURS,
    SCORES,
    STATES,
    VALUES,
    file_name,
    is_reserved,
    json_name,
    our_scores,
    split,
)
from jax_dynemb.stored._schema import Schema
from jax_dynemb.stored._table import StoredTable
from jax_dynemb.table import Exported


@dataclasses.dataclass(frozen=True)
class Dump:
    """One table of a dump.

    Attributes:
      path: of the directory.
      name: of the table.
      ranks: the dump was split in so many.
      counts: rows of each rank.
      dim: columns of a row; 0 if there are no rows.
      state_width: numbers of optimizer state a row; None if none were dumped.
      score_words: 1, 2 for compound scores, 0 if none were dumped.
      metadata: the JSON.
    """

    path: Path
    name: str
    ranks: int
    counts: tuple[int, ...]
    dim: int
    state_width: int | None
    score_words: int
    metadata: Mapping[str, Any]

    def chunks(self) -> Iterator[Exported]:
        """Rows as stored: scores as they are in the file, states as "states"."""
        for rank, count in enumerate(self.counts):
            arrays = {
                KEYS: self._array(KEYS, rank, 1)[:, 0],
                VALUES: self._array(VALUES, rank, self.dim),
            }
            if self.score_words:
                arrays[SCORES] = self._array(SCORES, rank, self.score_words)
            if self.state_width:
                arrays[STATES] = self._array(STATES, rank, self.state_width)
            for start in range(0, count, BLOCK_ROWS):
                block = {k: a[start : start + BLOCK_ROWS] for k, a in arrays.items()}
                yield self._chunk({k: np.array(a) for k, a in block.items()})

    def index(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Keys and scores only."""
        for rank, count in enumerate(self.counts):
            keys = np.array(self._array(KEYS, rank, 1)[:, 0])
            scores = np.ones((count, 1), np.int64)
            if self.score_words:
                scores = self._array(SCORES, rank, self.score_words)
            allowed = ~is_reserved(keys)
            last = np.ascontiguousarray(scores[:, -1])[allowed]
            yield keys[allowed], last.view(np.uint64)

    def counter(self) -> tuple[np.ndarray, np.ndarray]:
        """Keys and frequencies of the admission counter, of all ranks."""
        kinds = (COUNTER_KEYS, COUNTER_FREQUENCIES)
        keys, frequencies = (
            [
                np.fromfile(file, DTYPES[kind])
                for file in files_of(self.path, self.name, kind)
            ]
            for kind in kinds
        )
        none = [np.empty(0, np.int64)]
        return np.concatenate(keys or none), np.concatenate(frequencies or none)

    def _chunk(self, block: dict[str, np.ndarray]) -> Exported:
        allowed = ~is_reserved(block[KEYS])
        block = {kind: array[allowed] for kind, array in block.items()}
        scores = block.get(SCORES, np.ones((len(block[KEYS]), 1), np.int64))
        states = {"states": block[STATES]} if STATES in block else {}
        last = np.ascontiguousarray(scores[:, -1])
        return Exported(block[KEYS], block[VALUES], last.view(np.uint64), states)

    def _array(self, kind: str, rank: int, width: int) -> np.ndarray:
        file = self.path / file_name(self.name, kind, rank, self.ranks)
        shape = (self.counts[rank], width)
        if 0 in shape:
            return np.empty(shape, DTYPES[kind])
        return np.memmap(file, DTYPES[kind], mode="r", shape=shape)


def dumped_tables(path: Path) -> list[str]:
    """The names of the tables of a dump."""
    marker = f"_{KEYS}.rank_"
    found = {p.name.split(marker)[0] for p in path.iterdir() if marker in p.name}
    return sorted(found)


def open_dump(path: Path, name: str) -> Dump:
    """Finds the files of a table and checks that they belong together.

    Raises:
      ValueError: files are missing, or sizes do not fit.
    """
    keys = files_of(path, name, KEYS)
    if not keys:
        raise ValueError(
            f"{path} has no files of table '{name}'. Tables there: "
            f"{dumped_tables(path)}."
        )
    counts = tuple(file.stat().st_size // 8 for file in keys)
    total = sum(counts)
    widths = {
        kind: _width(path, name, kind, counts) for kind in (VALUES, SCORES, STATES)
    }
    if widths[VALUES] is None:
        raise ValueError(f"{path} has keys but no values of table '{name}'.")
    return Dump(
        path=path,
        name=name,
        ranks=len(keys),
        counts=counts,
        dim=widths[VALUES] or 0,
        state_width=widths[STATES],
        score_words=(widths[SCORES] or 0) if total else 1,
        metadata=_metadata(path / json_name(name)),
    )


def stored_dump(dump: Dump) -> StoredTable:
    """The table of a dump in the terms of this library."""
    strategy = OURS.get(dump.metadata.get("evict_strategy", ""), "")
    strategy = strategy if dump.score_words == 1 else ""
    kind, states = _states_of(dump)
    now = time.time_ns()

    def chunks() -> Iterator[Exported]:
        for chunk in dump.chunks():
            columns = chunk.optimizer_state.get("states")
            yield chunk._replace(
                scores=our_scores(chunk.scores, strategy, now),
                optimizer_state={} if columns is None else split(columns, states),
            )

    def index() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for keys, scores in dump.index():
            yield keys, our_scores(scores, strategy, now)

    schema = Schema(
        name=dump.name,
        dim=dump.dim,
        score_strategy=strategy,
        optimizer=_hyper_parameters(dump.metadata, kind),
        states=states,
        config={"ranks": dump.ranks, **dump.metadata},
    )
    counters = {"step": int(dump.metadata.get("iters", 0))}
    return StoredTable(schema, sum(dump.counts), counters, chunks, index)


def _states_of(dump: Dump) -> tuple[str, dict[str, tuple[int, ...]]]:
    """Our name of the optimizer, and the states of a row; "" if they do not fit."""
    for kind, (theirs, names, _) in OPTIMIZERS.items():
        shape = () if kind == "rowwise_adagrad" else (dump.dim,)
        states = dict.fromkeys(names, shape)
        width = sum(shape[0] if shape else 1 for shape in states.values())
        if dump.metadata.get("opt_type") == theirs and dump.state_width == width:
            return kind, states
    return "", {"states": (dump.state_width,)} if dump.state_width else {}


def _hyper_parameters(metadata: Mapping[str, Any], kind: str) -> dict[str, Any]:
    if not kind:
        return {"kind": ""}
    names = OPTIMIZERS[kind][2]
    return {"kind": kind} | {names[k]: metadata[k] for k in names if k in metadata}


def files_of(path: Path, name: str, kind: str) -> list[Path]:
    """The files of one kind, by rank.

    Raises:
      ValueError: a rank is missing, or files of two dumps are mixed.
    """
    pattern = re.compile(rf"{re.escape(name)}_{kind}\.rank_(\d+)\.world_size_(\d+)")
    found = {}
    for file in path.iterdir():
        if match := pattern.fullmatch(file.name):
            found[int(match[1]), int(match[2])] = file
    if not found:
        return []
    ranks = {w for _, w in found}
    if len(ranks) > 1 or {r for r, _ in found} != set(range(max(ranks))):
        raise ValueError(
            f"The {kind} files of table '{name}' in {path} are not those of one dump: "
            f"{sorted(file.name for file in found.values())}. Dump again into an empty "
            "directory."
        )
    return [found[key] for key in sorted(found)]


def _width(path: Path, name: str, kind: str, counts: tuple[int, ...]) -> int | None:
    """Numbers a row of one kind of file; None if the kind was not dumped."""
    files = files_of(path, name, kind)
    if not files:
        return None
    if len(files) != len(counts):
        raise ValueError(
            f"Table '{name}' in {path} has {len(counts)} files of keys but "
            f"{len(files)} of {kind}: the dump is not complete."
        )
    item = np.dtype(DTYPES[kind]).itemsize
    widths = set()
    for file, count in zip(files, counts, strict=True):
        size = file.stat().st_size
        if size % (item * max(count, 1)) or (size and not count):
            raise ValueError(
                f"{file} has {size} bytes, which is not a whole number of rows of "
                f"{count} keys: it was cut off, or belongs to another dump."
            )
        if count:
            widths.add(size // (item * count))
    if len(widths) > 1:
        raise ValueError(
            f"The {kind} files of table '{name}' in {path} have rows of different "
            f"widths {sorted(widths)}: they are not of one dump."
        )
    return widths.pop() if widths else 0


def _metadata(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}.") from None
