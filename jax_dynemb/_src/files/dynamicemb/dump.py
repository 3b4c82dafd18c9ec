# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A reader of DynamicEmb dumps: finds the files, checks them, yields the rows."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jax_dynemb._src.files.disk import disk_errors
from jax_dynemb._src.files.dynamicemb.format import (
    BLOCK_ROWS,
    COUNTER_FREQUENCIES,
    COUNTER_KEYS,
    DTYPES,
    FLOATS,
    KEYS,
    OPTIMIZERS,
    OURS,
    SCORES,
    STATES,
    UPDATES,
    VALUES,
    file_name,
    is_reserved,
    json_name,
    our_scores,
    split,
)
from jax_dynemb._src.files.integrity import (
    NAME,
    Advance,
    DamagedFileError,
    Entry,
    Fields,
    check_file,
    file_bytes,
    read_entries,
    read_json,
    verify_files,
)
from jax_dynemb._src.rows import AdmissionCounts, Exported, Schema, StoredTable


@dataclasses.dataclass(frozen=True)
class Dump:
    """One table of a dump."""

    path: Path
    name: str
    ranks: int  # the dump was split in so many
    counts: tuple[int, ...]
    dim: int  # columns of a row; 0 if there are no rows
    # Numbers of optimizer state a row; None if none were dumped.
    state_width: int | None
    score_words: int  # 1, 2 for compound scores, 0 if none were dumped
    metadata: Mapping[str, Any]
    # What checksums.json says of the table's files; None without it.
    entries: Mapping[str, Entry] | None
    # Of the files, by kind, where they are not the usual ones.
    dtypes: Mapping[str, np.dtype] = dataclasses.field(default_factory=dict)
    # Of a table whose ranks hold numbers of their own for its keys (dist_type
    # "continuous"); None: the files have the keys.
    num_embeddings: int | None = None

    @property
    def data_bytes(self) -> int:
        """Returns how many bytes ``verify`` reads."""
        return sum(each.size for each in (self.entries or {}).values())

    def verify(self, advance: Advance | None = None) -> None:
        """Compares files with their checksums, if any; a key may not come twice."""
        if self.entries is not None:
            files = self.entries.items()
            verify_files(self.path, files, advance=advance)
        ranks = range(self.ranks)
        keys = [self._keys(rank, 0, self.counts[rank]) for rank in ranks]
        ordered = np.sort(np.concatenate(keys), axis=None)
        if (again := np.flatnonzero(ordered[1:] == ordered[:-1])).size:
            file = self.path / file_name(self.name, KEYS, 0, self.ranks)
            problem = f"the key {ordered[again[0]]} comes twice in the dump"
            raise DamagedFileError(file, problem)

    def chunks(self) -> Iterator[Exported]:
        """Rows as stored: scores as they are in the file, states as "states".

        Compound scores are "scores" beside them, int64[n, 2].
        """
        widths = {VALUES: self.dim}
        if self.score_words:
            widths[SCORES] = self.score_words
        if self.state_width:
            widths[STATES] = self.state_width
        for rank, count in enumerate(self.counts):
            for start in range(0, count, BLOCK_ROWS):
                rows = min(BLOCK_ROWS, count - start)
                block = {
                    kind: self._read(kind, rank, width, start, rows)
                    for kind, width in widths.items()
                }
                yield self._chunk({KEYS: self._keys(rank, start, rows)} | block)

    def index(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Keys and scores only."""
        for rank, count in enumerate(self.counts):
            keys = self._keys(rank, 0, count)
            scores = np.ones((count, 1), np.int64)
            if self.score_words:
                scores = self._read(SCORES, rank, self.score_words, 0, count)
            allowed = ~is_reserved(keys)
            last = np.ascontiguousarray(scores[:, -1])[allowed]
            yield keys[allowed], last.view(np.uint64)

    def scores(self, rank: int) -> np.ndarray:
        """Scores of a rank as they are in the file: int64[n, score_words]."""
        return self._read(SCORES, rank, self.score_words, 0, self.counts[rank])

    @property
    def admission_counts(self) -> AdmissionCounts | None:
        """Returns what reads the admission counter; None without one."""
        return self.counter if files_of(self.path, self.name, COUNTER_KEYS) else None

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
        keys = [self._global(rank, own) for rank, own in enumerate(keys)]
        none = [np.empty(0, np.int64)]
        return np.concatenate(keys or none), np.concatenate(frequencies or none)

    def _chunk(self, block: dict[str, np.ndarray]) -> Exported:
        allowed = ~is_reserved(block[KEYS])
        block = {kind: array[allowed] for kind, array in block.items()}
        scores = block.get(SCORES, np.ones((len(block[KEYS]), 1), np.int64))
        states = {"states": block[STATES]} if STATES in block else {}
        if self.score_words > 1:
            states["scores"] = scores
        last = np.ascontiguousarray(scores[:, -1])
        return Exported(block[KEYS], block[VALUES], last.view(np.uint64), states)

    def _keys(self, rank: int, first: int, rows: int) -> np.ndarray:
        """Some keys of a rank, int64[rows]."""
        return self._global(rank, self._read(KEYS, rank, 1, first, rows)[:, 0])

    def _global(self, rank: int, keys: np.ndarray) -> np.ndarray:
        """Returns the keys that a rank has numbers of its own for.

        Rank r has ``key - r * block`` of the block of keys that it owns. Of the keys
        behind all blocks it has those with the remainder r, as ``key // ranks``, and
        these are the larger numbers. All of it is unsigned.
        """
        if self.num_embeddings is None:
            return keys
        block = np.uint64(-(-self.num_embeddings // self.ranks))
        own, place = np.ascontiguousarray(keys).view(np.uint64), np.uint64(rank)
        behind = own * np.uint64(self.ranks) + place
        return np.where(own < block, own + place * block, behind).view(np.int64)

    def _read(
        self, kind: str, rank: int, width: int, first: int, rows: int
    ) -> np.ndarray:
        """Some rows of a file, [rows, width]."""
        file = self.path / file_name(self.name, kind, rank, self.ranks)
        dtype = self.dtypes.get(kind, np.dtype(DTYPES[kind]))
        begin = first * width * dtype.itemsize
        count = rows * width * dtype.itemsize
        with disk_errors(file):
            found = np.fromfile(file, np.uint8, count, offset=begin)
        if len(found) < count:
            raise DamagedFileError(file, "it became shorter while it was read")
        numbers = found.view(dtype).reshape(rows, width)
        return numbers if dtype.itemsize > 2 else numbers.astype(np.float32)


def dumped_tables(path: Path) -> list[str]:
    """The names of the tables of a dump, those that checksums.json names included."""
    marker = f"_{KEYS}.rank_"
    there = {file.name for file in path.iterdir()}
    if any(marker in name for name in there):
        there |= (read_entries(path) or {}).keys()
    return sorted({name.split(marker)[0] for name in there if marker in name})


def open_dump(path: Path, name: str) -> Dump:
    """Finds the files of a table and checks that they belong together."""
    if not path.is_dir():
        raise FileNotFoundError(f"There is no directory {path}.")
    entries = _entries(path, name)
    keys = files_of(path, name, KEYS)
    if not keys:
        raise ValueError(
            f"{path} has no files of table '{name}'. Tables there: "
            f"{dumped_tables(path)}."
        )
    counts = tuple(_rows_of(file) for file in keys)
    total = sum(counts)
    metadata = _metadata(path / json_name(name))
    dtypes = _float_dtypes(path, name, metadata, total)
    widths = {
        kind: _width(path, name, kind, counts, dtypes.get(kind))
        for kind in (VALUES, SCORES, STATES)
    }
    if widths[VALUES] is None:
        values = path / file_name(name, VALUES, 0, len(keys))
        raise DamagedFileError(values, "it is missing")
    _check_counter(path, name, len(keys))
    return Dump(
        path=path,
        name=name,
        ranks=len(keys),
        counts=counts,
        dim=widths[VALUES] or 0,
        state_width=widths[STATES],
        score_words=(widths[SCORES] or 0) if total else 1,
        metadata=metadata,
        entries=entries,
        dtypes=dtypes,
    )


def _float_dtypes(
    path: Path, name: str, metadata: Mapping[str, Any], rows: int
) -> dict[str, np.dtype]:
    """Returns the dtypes of rows and states, if a dump says that rows have 16 bits."""
    given = str(metadata.get("embedding_dtype") or "float32").removeprefix("torch.")
    if given not in FLOATS:
        raise DamagedFileError(
            path / json_name(name),
            f"its embedding_dtype is {given!r}, not one of {sorted(FLOATS)}",
        )
    dtype = FLOATS[given]
    if dtype.itemsize > 2 or rows == 0:
        return {}
    of_row = sum(map(file_bytes, files_of(path, name, VALUES))) // rows
    of_states = sum(map(file_bytes, files_of(path, name, STATES))) // rows
    # States may have 16 bits too: their number says it.
    of_columns = {"adam": 2, "ftrl": 2, "exact_adagrad": 1}
    numbers = of_columns.get(str(metadata.get("opt_type")), 0)
    numbers = numbers * (of_row // dtype.itemsize) or 1
    if of_states == numbers * dtype.itemsize:
        return {VALUES: dtype, STATES: dtype}
    return {VALUES: dtype}


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
    rows = sum(dump.counts)
    return StoredTable(
        schema, rows, counters, chunks, index, admission_counts=dump.admission_counts
    )


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
    """Returns the files of one kind, by rank; none is missing or of another dump."""
    number = "(0|[1-9][0-9]{0,5})"
    pattern = re.compile(
        rf"{re.escape(name)}_{kind}\.rank_{number}\.world_size_{number}"
    )
    found = {}
    for file in path.iterdir():
        if match := pattern.fullmatch(file.name):
            found[int(match[1]), int(match[2])] = file
    if not found:
        return []
    ranks = {w for _, w in found}
    if len(ranks) > 1 or {r for r, _ in found} != set(range(max(ranks))):
        there = {r for r, _ in found}
        missing = next((r for r in range(max(ranks)) if r not in there), 0)
        raise DamagedFileError(
            path / file_name(name, kind, missing, max(ranks)),
            f"the {kind} files of table '{name}' are not those of one dump: "
            f"{sorted(file.name for file in found.values())}",
            "Dump again into an empty directory.",
        )
    return [found[key] for key in sorted(found)]


def _width(
    path: Path,
    name: str,
    kind: str,
    counts: tuple[int, ...],
    dtype: np.dtype | None,
) -> int | None:
    """Numbers a row of one kind of file; None if the kind was not dumped."""
    files = files_of(path, name, kind)
    if not files:
        return None
    if len(files) != len(counts):
        problem = f"there are {len(counts)} files of keys but {len(files)} of {kind}"
        raise DamagedFileError(files[-1], problem)
    item = (dtype or np.dtype(DTYPES[kind])).itemsize
    widths = set()
    for file, count in zip(files, counts, strict=True):
        size = file_bytes(file)
        if size % (item * max(count, 1)) or (size and not count):
            problem = (
                f"it has {size} bytes, which is not a whole number of rows of {count} "
                "keys: it was cut off, or belongs to another dump"
            )
            raise DamagedFileError(file, problem)
        if count:
            widths.add(size // (item * count))
    if len(widths) > 1 or (0 in widths and kind == VALUES):
        problem = f"the {kind} files have rows of the widths {sorted(widths)}"
        raise DamagedFileError(files[0], problem)
    return widths.pop() if widths else 0


def _rows_of(file: Path) -> int:
    """Keys in a file."""
    size = file_bytes(file)
    if size % 8:
        problem = f"it has {size} bytes, which is not a whole number of keys"
        raise DamagedFileError(file, problem)
    return size // 8


def _check_counter(path: Path, name: str, ranks: int) -> None:
    """Every key of an admission counter has a frequency."""
    keys, numbers = (
        files_of(path, name, kind) for kind in (COUNTER_KEYS, COUNTER_FREQUENCIES)
    )
    if not keys and not numbers:
        return
    if len(keys) != ranks or len(numbers) != ranks:
        problem = f"there are {len(keys)} counters and {len(numbers)} frequencies"
        raise DamagedFileError((keys + numbers)[0], f"{problem} of {ranks} ranks")
    for one, other in zip(keys, numbers, strict=True):
        if _rows_of(one) != _rows_of(other):
            problem = f"it has {_rows_of(other)} numbers for {_rows_of(one)} keys"
            raise DamagedFileError(other, problem)


def _entries(path: Path, name: str) -> dict[str, Entry] | None:
    """Reads a table's entries in checksums.json; all of its files must be there."""
    entries = read_entries(path)
    if entries is None:
        return None
    kinds = "|".join(DTYPES)
    pattern = re.compile(
        rf"{re.escape(name)}_(({kinds})\.rank_[0-9]+\.world_size_[0-9]+|opt_args\.json)"
    )
    own = {each: e for each, e in entries.items() if pattern.fullmatch(each)}
    for each, entry in own.items():
        check_file(path, each, entry)
    for file in path.iterdir():
        if pattern.fullmatch(file.name) and file.name not in own:
            raise DamagedFileError(file, f"{NAME} does not name it")
    return own


def _metadata(path: Path) -> Mapping[str, Any]:
    """The JSON, with checked types where something here depends on them."""
    if not path.exists():
        return {}
    fields: Fields = read_json(path)
    for name in ("opt_type", "evict_strategy", "dist_type", "embedding_dtype"):
        if fields.get(name) is not None:
            fields.text(name)
    for name in ("iters", "step_score", UPDATES):
        if fields.get(name) is not None:
            fields.whole(name)
    for name in {each for kind in OPTIMIZERS.values() for each in kind[2]}:
        if fields.get(name) is not None:
            fields.number(name)
    return fields
