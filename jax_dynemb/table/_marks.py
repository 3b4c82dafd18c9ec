# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Says where a delta begins and ends, and refuses one that does not continue."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from jax_dynemb._kind_of import kind_of
from jax_dynemb.rows import Exported

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
    """

    clock: int
    head: Head | None
    chain: str

    @classmethod
    def after(
        cls, before: Mark | None, table: str, clock: int, head: Head | None
    ) -> Self:
        """Continues a chain.

        Args:
          before: the mark before this one; None at the full export.
          table: its name.
          clock: of its next lookup.
          head: of its log.
        """
        chain = "" if before is None else before.chain
        text = repr((chain, table, clock, head))
        return cls(clock, head, hashlib.sha256(text.encode()).hexdigest()[:16])

    def to_json(self) -> dict[str, Any]:
        """Converts the mark to numbers and strings, to store beside a checkpoint."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Reads what ``to_json`` returned, or a JSON file made of it.

        Raises:
          TypeError: something else.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(fields, Mapping) or not names <= fields.keys():
            raise TypeError(
                f"Mark.from_json takes what mark.to_json() returned, a dict with "
                f"{sorted(names)}, not {fields!r}."
            )
        head = fields["head"]
        head = None if head is None else tuple(int(n) for n in head)
        return cls(int(fields["clock"]), head, str(fields["chain"]))


def check_mark(given: Any, what: str) -> None:
    """Refuses what is no mark.

    Raises:
      TypeError: with what to write.
    """
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
    """

    table: str
    since: Mark | None
    until: Mark
    chunks: Iterable[Exported]

    def __iter__(self) -> Iterator[Exported]:
        """Streams the chunks."""
        return iter(self.chunks)


@dataclasses.dataclass(frozen=True)
class Stream:
    """Streams chunks from the first one on at each iteration.

    Attributes:
      begin: starts a new iteration.
    """

    begin: Callable[[], Iterator[Exported]]

    def __iter__(self) -> Iterator[Exported]:
        """Starts again."""
        return self.begin()


def check_continues(table: str, delta: Delta, at: Mark | None) -> None:
    """Refuses a delta that does not begin where a replica is.

    Args:
      table: of the replica.
      delta: to be applied to it.
      at: the mark of the delta before, or of the full export; None: the replica has
        no rows.

    Raises:
      ValueError: the delta is of another table, was applied already, or one before it
        is missing.
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
    if delta.until == at:
        raise ValueError(f"{what} was applied already: leave it out.")
    if delta.since.clock > at.clock:
        raise ValueError(
            f"{what} {begins}, but {there}: a delta between them is missing. Apply "
            "that one first, or begin again with a full export."
        )
    raise ValueError(
        f"{what} {begins}, but {there}: it is out of order, or of another run. Apply "
        "deltas in the order in which they were made, or begin again with a full "
        "export."
    )
