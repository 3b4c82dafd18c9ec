# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the dump directory of NVIDIA's DynamicEmb into tables."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jax_dynemb._src.config import ScoreStrategy, TableConfig
from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.shard import counter_values, set_counters
from jax_dynemb._src.files.disk import progress_bar
from jax_dynemb._src.files.dynamicemb.compound import COMPOUND, CompoundScores
from jax_dynemb._src.files.dynamicemb.dump import open_dump
from jax_dynemb._src.files.dynamicemb.format import (
    EVICT_STRATEGY,
    OPTIMIZERS,
    UPDATES,
    our_scores,
    split,
)
from jax_dynemb._src.files.live import Imported, check_room, clear_table, lost_rows
from jax_dynemb._src.ops import TableState
from jax_dynemb._src.rows import Exported, Schema
from jax_dynemb._src.scores import MOST_SCORE
from jax_dynemb._src.table import Tables, insert_chunks, with_counts


def dynamicemb(
    path: str | os.PathLike[str],
    coll: Tables,
    state: States | None = None,
    *,
    tables: Iterable[str] | None = None,
    optimizer: bool = True,
    now: int | None = None,
    allow_drop: bool = False,
    num_embeddings: Mapping[str, int] | None = None,
    quiet: bool = False,
) -> Imported:
    """Reads a dump of DynamicEmb, of any number of ranks.

    Args:
      path: the collection's directory.
      coll: the tables to fill, under the names they have in the dump.
      state: to be filled, its rows are replaced and its arrays donated; new if None.
      tables: only these.
      optimizer: read optimizer states and the number of updates.
      now: the present in nanoseconds, which ages are counted from.
      allow_drop: leave out rows that find no place in a smaller table, with a warning.
      num_embeddings: by table, that of its config in DynamicEmb. Several ranks of
        dist_type "continuous" dump numbers within a rank; it makes keys of them again.
      quiet: no progress bar.

    Returns:
      The state, admission counts and notes. A table that admits by frequency goes on
      with the counts of the dump.

    Every file is read and compared before the state is touched.

    Raises:
      DamagedFileError: a file is missing, altered or of the wrong size, or a key comes
        twice; the state lives on.
      ValueError: there is no such table, it does not fit, or it has too few slots
        for the rows; the state lives on.
    """
    names = list(coll.tables if tables is None else tables)
    sizes = num_embeddings or {}
    readers = [
        _Reader(Path(path), coll, name, optimizer, now, sizes.get(name))
        for name in names
    ]
    to_read = sum(reader.dump.data_bytes for reader in readers)
    with progress_bar("verifying", to_read, quiet) as advance:
        for reader in readers:
            reader.dump.verify(advance)
    check_room(coll, {reader.name: reader.keys for reader in readers}, allow_drop)
    new = dict(coll.init(0) if state is None else state)
    counters, notes = {}, []
    total = sum(sum(reader.dump.counts) for reader in readers)
    with progress_bar("dynamicemb", total, quiet) as advance:
        for reader in readers:
            arrays = coll.state_name(reader.name)
            new[arrays] = reader.fill(new[arrays], advance)
            counters[reader.name] = reader.dump.counter()
            new[arrays], changed = with_counts(
                coll, reader.name, new[arrays], reader.dump.admission_counts
            )
            reader.notes += changed
            notes += [f"Table '{reader.name}': {note}" for note in reader.notes]
            notes += reader.lost
    return Imported(new, counters, tuple(notes))


class _Reader:
    """Fills one table. What does not fit is found before anything is changed."""

    def __init__(
        self,
        path: Path,
        coll: Tables,
        name: str,
        optimizer: bool,
        now: int | None,
        num_embeddings: int | None,
    ):
        self.name = name
        self.notes: list[str] = []
        self.lost: list[str] = []
        self.dump = open_dump(path, name)
        self._coll = coll
        self._config: TableConfig = coll.tables[name]
        self._now = time.time_ns() if now is None else now
        self._strategy = ScoreStrategy(self._config.score_strategy).value
        self._kind = self._config.optimizer.kind or "optax"
        self._highest = 0
        self._read = 0
        self._check_rows()
        self._check_keys(num_embeddings)
        self._takes_step = False
        self._takes_states = optimizer and self._check_optimizer()
        self._compound: CompoundScores | None = None
        self._takes_scores = self._check_scores()

    def keys(self) -> Iterator[np.ndarray]:
        """Starts to read the keys of the rows."""
        return (keys for keys, _ in self.dump.index())

    def fill(self, state: TableState, advance: Any) -> TableState:
        """Replaces the rows of the table."""
        new = insert_chunks(
            self._coll,
            self.name,
            clear_table(self._coll, self.name, state),
            self._chunks(advance),
            optimizer=self._takes_states,
            scores=self._takes_scores,
        )
        arrays = {self._coll.state_name(self.name): new}
        counted = self._coll.hash_engine.with_own_counters(arrays, self.name)
        self._note_losses(counter_values(counted)["rows"])
        rows = self._coll.hash_engine.counter_rows(self.name)
        return set_counters(new, self._counters(counted), rows)

    def _chunks(self, advance: Any) -> Iterator[Exported]:
        for chunk in self.dump.chunks():
            advance(len(chunk.keys))
            self._read += len(chunk.keys)
            if self._compound is not None:
                scores = self._compound.ours(chunk.optimizer_state["scores"])
            else:
                scores = our_scores(chunk.scores, self._strategy, self._now)
            self._highest = max(self._highest, int(scores.max(initial=0)))
            states = self._states(chunk) if self._takes_states else {}
            yield Exported(chunk.keys, chunk.rows, scores, states)

    def _states(self, chunk: Exported) -> dict[str, np.ndarray]:
        shapes = {name: spec.shape for name, spec in self._config.states.items()}
        return split(chunk.optimizer_state["states"], shapes)

    def _check_rows(self) -> None:
        dump, config = self.dump, self._config
        if sum(dump.counts) and dump.dim != config.dim:
            raise ValueError(
                f"Table '{self.name}' was dumped with dim {dump.dim}, but its config "
                f"has dim {config.dim}.{self._perhaps_halves()}"
            )

    def _check_keys(self, num_embeddings: int | None) -> None:
        """Takes the size of a table whose ranks have numbers of their own."""
        if self.dump.metadata.get("dist_type") != "continuous" or self.dump.ranks == 1:
            return
        if num_embeddings is None:
            raise ValueError(
                f"Table '{self.name}' was dumped with dist_type 'continuous' by "
                f"{self.dump.ranks} ranks, which replaces keys by numbers within a "
                f"rank. Pass num_embeddings={{'{self.name}': ...}}, that of its config "
                "in DynamicEmb, which gives the keys back."
            )
        self.dump = dataclasses.replace(self.dump, num_embeddings=num_embeddings)

    def _perhaps_halves(self) -> str:
        """Names the other reason where the JSON does not say that rows have 16 bits."""
        said = self.dump.metadata.get("embedding_dtype")
        if said is not None or 2 * self.dump.dim != self._config.dim:
            return ""
        return (
            " If its rows have 16 bits, say so in its JSON: "
            '"embedding_dtype": "torch.bfloat16" or "torch.float16".'
        )

    def _check_optimizer(self) -> bool:
        """Whether states can be read; says why not."""
        theirs, width = self.dump.metadata.get("opt_type"), self.dump.state_width
        ours = OPTIMIZERS.get(self._kind, ("", (), {}))[0]
        if theirs != ours or width is None:
            if theirs is not None or self._config.states:
                self.notes.append(
                    f"no states of {ours or self._kind} in the dump (it has "
                    f"{theirs or 'none'}): the optimizer starts anew."
                )
            return False
        specs = self._config.states.values()
        expected = sum(int(np.prod(spec.shape, dtype=int)) for spec in specs)
        if sum(self.dump.counts) and width != expected:
            raise ValueError(
                f"Table '{self.name}' was dumped with {width} numbers of optimizer "
                f"state a row, but {ours} keeps {expected}."
            )
        self._note_hyper_parameters()
        self._takes_step = True
        return expected > 0 and width > 0

    def _note_hyper_parameters(self) -> None:
        numbers = Schema.of(self._config).optimizer
        for theirs, ours in OPTIMIZERS[self._kind][2].items():
            number, own = self.dump.metadata.get(theirs), numbers.get(ours)
            if number is not None and own is not None and number != own:
                self.notes.append(
                    f"{theirs} was {number} in the dump; the config's {ours}={own} "
                    "is used."
                )

    def _check_scores(self) -> bool:
        """Whether scores can be read; says why not."""
        theirs = self.dump.metadata.get("evict_strategy")
        ours = EVICT_STRATEGY[self._strategy]
        if self._config.lfu_halflife:
            self.notes.append(
                "counts of the dump do not decay, those of the table do: rows are "
                "scored as new."
            )
            return False
        if self.dump.score_words == 0:
            self.notes.append("the dump has no scores: rows are scored as new.")
            return False
        if self.dump.score_words == 1 and theirs in (None, ours):
            self._check_range()
            return (
                self._strategy != "no_eviction"
            )  # there a score is the number of a row
        if self.dump.score_words == 2 and self._strategy in COMPOUND:
            self._compound = CompoundScores.of(self.dump, self._strategy)
            if self._compound is not None:
                return True
        self.notes.append(
            f"scores of {theirs or 'the dump'} can not become those of {ours}: rows "
            "are scored as new."
        )
        return False

    def _check_range(self) -> None:
        """Refuses custom scores that no row can have, and notes others."""
        if self._strategy not in ("customized", "lfu", "step"):
            return
        most = {"customized": MOST_SCORE, "lfu": 2**30 - 1}.get(self._strategy, 2**61)
        parts = (scores[scores > np.uint64(most)] for _, scores in self.dump.index())
        over = [part for part in parts if len(part)]
        if not over:
            return
        count, highest = sum(map(len, over)), max(int(part.max()) for part in over)
        if self._strategy != "lfu":
            raise ValueError(
                f"Table '{self.name}': {count} scores of the dump are above {most}, up "
                f"to {highest} (a negative one counts as 2**64 more). Leave the scores "
                "file out to score the rows as new."
            )
        self.notes.append(
            f"{count} counts of the dump, up to {highest}, became 2**30 - 1, the most "
            "that a row counts."
        )

    def _note_losses(self, rows: int) -> None:
        reserved = sum(self.dump.counts) - self._read
        if reserved:
            self.notes.append(f"{reserved} keys from -4 to -1 were left out: reserved.")
        self.lost = lost_rows(self.name, rows, self._read)

    def _counters(self, state: TableState) -> dict[str, int]:
        numbers = {"inserted": counter_values(state)["rows"], "evicted": 0}
        if self._takes_step:
            known = self.dump.metadata
            numbers["step"] = int(known.get("iters", known.get(UPDATES, 0)))
        if self._takes_scores and self._strategy == "step":
            next_step = int(self.dump.metadata.get("step_score", 1))
            numbers["clock"] = max(next_step - 1, self._highest)
        return numbers
