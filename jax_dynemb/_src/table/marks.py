# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Says where a delta begins and ends, and refuses one that does not continue."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np

from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.rows import Exported, Identity, identity_of

# Of the log of removed keys: the stamp of its table, the size of a ring, and then how
# many keys each ring has had.
Head = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Mark:
    """Marks where one delta of a table ends and the next begins.

    Attributes:
      clock: of the next lookup, as ``get_score`` says.
      head: of the log of removed keys; None for a table without one.
      chain: hash of this mark and of all marks before it, since the full export.
      identity: of the table at that moment; None in a mark of an older version.
    """

    clock: int
    head: Head | None
    chain: str
    identity: Identity | None = None

    @classmethod
    def after(
        cls,
        before: Mark | None,
        table: str,
        clock: int,
        head: Head | None,
        identity: Identity | None,
    ) -> Self:
        """Continues a chain.

        Args:
          before: the mark before this one; None at the full export.
          table: its name.
          clock: of its next lookup.
          head: of its log.
          identity: of the table.
        """
        chain = "" if before is None else before.chain
        token = None if identity is None else identity.token
        text = repr((chain, table, clock, head, token))
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return cls(clock, head, digest, identity)

    def to_json(self) -> dict[str, Any]:
        """Converts the mark to numbers and strings, to store beside a checkpoint."""
        identity = None if self.identity is None else self.identity.to_json()
        return {
            "clock": self.clock,
            "head": None if self.head is None else list(self.head),
            "chain": self.chain,
            "identity": identity,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Reads what ``to_json`` returned, or a JSON file made of it.

        Raises:
          TypeError: something else.
          ValueError: its identity is none.
        """
        names = {"clock", "head", "chain"}
        if not isinstance(fields, Mapping) or not names <= fields.keys():
            raise TypeError(
                f"Mark.from_json takes what mark.to_json() returned, a dict with "
                f"{sorted(names)}, not {fields!r}."
            )
        head = fields["head"]
        head = None if head is None else tuple(int(n) for n in head)
        identity = identity_of(fields)
        return cls(int(fields["clock"]), head, str(fields["chain"]), identity)


def check_mark(given: Any, what: str) -> None:
    """Refuses what is no mark."""
    if not isinstance(given, Mark):
        raise TypeError(
            f"{what} must be a jde.Mark, not {kind_of(given)}: pass what export_delta "
            "returned, or jde.Mark.from_json(fields) of what was stored."
        )


@dataclasses.dataclass(frozen=True)
class Delta:
    """Holds what changed in a table between two marks, for any number of replicas.

    Each iteration reads the table again. So use it before the state is donated, or keep
    ``list(delta)`` as its chunks.

    Attributes:
      table: its name.
      since: where it begins; None: it has all rows.
      until: where it ends.
      chunks: rows and removed keys, for ``apply_delta``.
      counters: of the table at its end that training depends on: updates, clock,
        lookups and seed.
      extra: what its optimizer stores once for the table.
    """

    table: str
    since: Mark | None
    until: Mark
    chunks: Iterable[Exported]
    counters: Mapping[str, int] | None = None
    extra: tuple[np.ndarray, ...] = ()

    def __iter__(self) -> Iterator[Exported]:
        """Streams the chunks."""
        return iter(self.chunks)


@dataclasses.dataclass(frozen=True)
class Stream:
    """Streams chunks from the first one on at each iteration."""

    begin: Callable[[], Iterator[Exported]]

    def __iter__(self) -> Iterator[Exported]:
        """Starts again."""
        return self.begin()


def check_continues(table: str, delta: Delta, at: Mark | None) -> None:
    """Refuses a delta that does not begin where a replica is.

    ``at`` is the mark of the delta before, or of the full export; None without rows.
    """
    if delta.table != table:
        raise ValueError(
            f"This delta is of table '{delta.table}': apply it to that, not to "
            f"'{table}'."
        )
    if delta.since == at:
        return
    what = f"Table '{table}': this delta"
    if delta.since is None:
        raise ValueError(
            f"{what} has all rows, but the replica has some already: apply it to an "
            "empty table, with at=None."
        )
    begins = f"begins at clock {delta.since.clock} (chain {delta.since.chain})"
    if at is None:
        raise ValueError(
            f"{what} {begins}, but the replica has no rows yet. Apply a full export "
            "first, which export_delta makes without since=; or pass at=, the until "
            "of the delta before."
        )
    there = f"the replica is at {at.clock} (chain {at.chain})"
    theirs, ours = delta.since.identity, at.identity
    if theirs is not None and ours is not None and theirs.run != ours.run:
        raise ValueError(
            f"{what} is of another run than the replica: begin again with a full "
            "export of that run, in an empty table."
        )
    if delta.until == at:
        raise ValueError(f"{what} was applied already: leave it out.")
    if delta.since.clock > at.clock:
        raise ValueError(
            f"{what} {begins}, but {there}: a delta between them is missing. Apply "
            "that one first, or begin again with a full export."
        )
    raise ValueError(
        f"{what} {begins}, but {there}: it is out of order, or of another run or "
        "history. Apply deltas in the order in which they were made, or begin again "
        "with a full export."
    )
