# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which table, which run and which moment rows are of; compared, not guessed."""

from __future__ import annotations

import dataclasses
import enum
import warnings
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from jax_dynemb._src import ffi as _ffi

RING = 16  # moments whose nonces a state remembers
ANCESTORS = 8  # segments that a state remembers


class Relation(enum.Enum):
    """Says what an earlier identity is to a later one.

    Attributes:
      SAME: the same moment.
      CONTINUES: the later one came out of the earlier one.
      OTHER_RUN: they come from two calls of ``init``.
      OTHER_HISTORY: one run, but the later one does not come out of the earlier one.
      TOO_OLD: more restores lie between than a state remembers.
    """

    SAME = "the same moment"
    CONTINUES = "an earlier moment"
    OTHER_RUN = "another run"
    OTHER_HISTORY = "another history of this run"
    TOO_OLD = "a moment too many restores ago"


@dataclasses.dataclass(frozen=True)
class Identity:
    """Identifies a table at one moment.

    A history is a tree: a restore begins a new segment, and two programs that go on
    from one state part at their next lookup. A training lookup is a moment and draws a
    nonce, so that two branches of one length differ. A restore is a moment too.

    Attributes:
      run: 128 random bits of ``init``.
      segment: 64 random bits of the latest restore, or of ``init``.
      moment: how many moments there were since ``init``.
      nonces: of the latest moments, that of ``m`` at ``m % RING``; 0 where none was
        drawn.
      ancestors: segments before this one, the latest first, each with the clock at
        which the next one left it.
    """

    run: int
    segment: int
    clock: int
    moment: int
    nonces: tuple[int, ...]
    ancestors: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, counters: np.ndarray) -> Self | None:
        """Reads identity from counters uint32[rows, n, 2]; None of an older version."""
        words = np.ascontiguousarray(np.asarray(counters)[0])
        values = words.view(np.uint64).reshape(-1).tolist()
        known = dict(zip(_ffi.constants()["counters"], values, strict=False))
        if not known.get("segment"):
            return None
        pairs = [known[name] for name in known if name.startswith("ancestors")]
        ancestors = zip(pairs[::2], pairs[1::2], strict=True)
        return cls(
            run=known["stamp_high"] << 64 | known["stamp"],
            segment=known["segment"],
            clock=known["clock"],
            moment=known["moment"],
            nonces=tuple(known[name] for name in known if name.startswith("nonces")),
            ancestors=tuple(pair for pair in ancestors if pair[0]),
        )

    def relation(self, mark: Identity) -> Relation:
        """Says what an identity that was noted before is to this one."""
        if mark.run != self.run:
            return Relation.OTHER_RUN
        if mark.moment > self.moment or not self._agrees(mark):
            return Relation.OTHER_HISTORY
        if mark.segment == self.segment:
            if mark.clock > self.clock:
                return Relation.OTHER_HISTORY
            is_same = (mark.moment, mark.clock) == (self.moment, self.clock)
            return Relation.SAME if is_same else Relation.CONTINUES
        left_at = dict(self.ancestors).get(mark.segment)
        if left_at is not None:
            behind = mark.clock > left_at
            return Relation.OTHER_HISTORY if behind else Relation.CONTINUES
        forgets = len(self.ancestors) == ANCESTORS
        return Relation.TOO_OLD if forgets else Relation.OTHER_HISTORY

    def _agrees(self, mark: Identity) -> bool:
        """Whether both had the same latest moment, as far as both remember it.

        A restore forgets nonces; those of before it are 0.
        """
        if self.moment - mark.moment >= RING:
            return True
        place = mark.moment % RING
        ours, theirs = self.nonces[place], mark.nonces[place]
        return ours == theirs or 0 in (ours, theirs)

    @property
    def token(self) -> str:
        """Spells the moment, for hashes and for people."""
        nonce = self.nonces[self.moment % RING]
        return f"{self.run:032x}-{self.segment:016x}-{self.moment}-{nonce:016x}"

    def to_json(self) -> dict[str, Any]:
        """As strings and numbers; what has 64 bits or more is in hexadecimal."""
        return {
            "run": f"{self.run:032x}",
            "segment": f"{self.segment:016x}",
            "clock": self.clock,
            "moment": self.moment,
            "nonces": "".join(f"{nonce:016x}" for nonce in self.nonces),
            "ancestors": [
                [f"{segment:016x}", clock] for segment, clock in self.ancestors
            ],
        }

    @classmethod
    def from_json(cls, fields: Any) -> Self:
        """Reads what ``to_json`` wrote, or raises ValueError."""
        try:
            return cls(
                run=_number(fields["run"], 32),
                segment=_number(fields["segment"], 16),
                clock=_whole(fields["clock"]),
                moment=_whole(fields["moment"]),
                nonces=_nonces(fields["nonces"]),
                ancestors=tuple(
                    (_number(segment, 16), _whole(clock))
                    for segment, clock in fields["ancestors"]
                ),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"this is no identity: {error!r}") from error


def check_ancestor(now: Identity | None, mark: Identity | None, what: str) -> None:
    """Refuses a table that does not come out of ``mark``: another run or history.

    None is the mark of a version that noted none, of which the call only warns.
    ``what`` opens the sentences.
    """
    if now is None:
        return
    if mark is None:
        warnings.warn(
            f"{what} was made by a version that did not note the run, so nothing "
            "tells whether it is of this one. Begin again with a full export.",
            RuntimeWarning,
            stacklevel=4,
        )
        return
    relation = now.relation(mark)
    if relation not in (Relation.SAME, Relation.CONTINUES):
        raise ValueError(f"{what} {_REASONS[relation]}")


_REASONS = {
    Relation.OTHER_RUN: "is of another run: of another call of init, or another table.",
    Relation.OTHER_HISTORY: (
        "is of a history that was left: the table went back to an older checkpoint or "
        "an older state since."
    ),
    Relation.TOO_OLD: (
        f"is older than the {ANCESTORS} latest restores, so nothing tells whether it "
        "is of this history."
    ),
}


def identity_of(fields: Mapping[str, Any]) -> Identity | None:
    """Reads the entry "identity" of a file; None where an older one has none."""
    given = fields.get("identity")
    return None if given is None else Identity.from_json(given)


def _number(text: str, digits: int) -> int:
    if len(text) != digits or not set(text) <= set("0123456789abcdef"):
        raise ValueError(f"{text!r} has not {digits} hexadecimal digits")
    return int(text, 16)


def _nonces(text: str) -> tuple[int, ...]:
    if len(text) != 16 * RING:
        raise ValueError(f"the nonces have {len(text)} digits, not {16 * RING}")
    return tuple(_number(text[16 * n : 16 * n + 16], 16) for n in range(RING))


def _whole(number: Any) -> int:
    if type(number) is not int or not 0 <= number < 1 << 64:
        raise ValueError(f"{number!r} is no whole number of 64 bits")
    return number
