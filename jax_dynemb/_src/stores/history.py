# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The commits of a key-value store, and which older values it keeps for them.

A row is overwritten in place, so readers find the newest one under its name. Before a
row changes for the first time after a commit, the value that the commit has goes into
the epoch of that commit. Going back puts the values of epochs back, the newest epoch
first.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, NamedTuple

from jax_dynemb._src.files.integrity import DamagedFileError
from jax_dynemb._src.rows import Identity

_NAMES = 64  # of commits that stay where no older values do


class Commit(NamedTuple):
    """Describes a commit."""

    number: int  # that of the epoch which follows it; 0 where no older values are kept
    tag: str
    step: int
    # The table and the moment that the rows are of; None if no prefetcher said it.
    identity: Identity | None = None

    def to_json(self) -> list[Any]:
        """As a list, of three values where there is no identity."""
        known = [] if self.identity is None else [self.identity.to_json()]
        return [self.number, self.tag, self.step, *known]

    @classmethod
    def from_json(cls, fields: Any) -> Commit:
        """Reads what ``to_json`` made, or raises ValueError."""
        number, tag, step, *known = fields
        identity = Identity.from_json(*known) if known else None
        return cls(int(number), str(tag), int(step), identity)


@dataclasses.dataclass(frozen=True)
class History:
    """Lists what a store can go back to. It is one value, so it changes at once."""

    commits: tuple[Commit, ...] = ()  # the first one first
    lowest: int = 0  # no epoch below has values
    # No epoch above has values. It is the number of the last commit, except while a
    # store goes back.
    highest: int = 0

    @property
    def number(self) -> int:
        """Returns the number of the last commit, 0 before the first one."""
        return self.commits[-1].number if self.commits else 0

    @property
    def tag(self) -> str | None:
        """Returns the name of the last commit."""
        return self.commits[-1].tag if self.commits else None

    @property
    def identity(self) -> Identity | None:
        """Returns of which table and moment the rows of the last commit are."""
        return self.commits[-1].identity if self.commits else None

    @property
    def first(self) -> int:
        """Returns the number of the first commit that stays, 0 if there is none."""
        return self.commits[0].number if self.commits else 0

    def with_commit(
        self, tag: str, step: int, keep: int, identity: Identity | None = None
    ) -> History:
        """Adds or replaces a commit; ``keep`` stay, with 0 names without epochs."""
        others = [each for each in self.commits if each.tag != tag]
        if not keep:
            return History((*others, Commit(0, tag, step, identity))[-_NAMES:])
        number = self.number + 1
        others = [each for each in others if each.number]
        commits = (*others, Commit(number, tag, step, identity))[-keep:]
        return History(commits, self.first, number)

    def back_to(self, tag: str | None, keep: int, where: str) -> History:
        """Forgets the commits after one, which must exist; None is the last one."""
        if tag is None:
            return self
        tags = [each.tag for each in self.commits if each.number or not keep]
        if tag not in tags:
            known = ", ".join(tags) or "none yet"
            raise FileNotFoundError(
                f"{where} has no commit {tag!r}; there are: {known}"
            )
        last = next(i for i, each in enumerate(self.commits) if each.tag == tag)
        commits = self.commits[: last + 1]
        return dataclasses.replace(self, commits=commits)

    def to_bytes(self) -> bytes:
        """As the value that a store keeps."""
        commits = [each.to_json() for each in self.commits]
        epochs = {"lowest": self.lowest, "highest": self.highest}
        return json.dumps({"commits": commits} | epochs).encode()

    @classmethod
    def from_bytes(cls, stored: bytes | None, where: str) -> History:
        """Reads what ``to_bytes`` made, or raises DamagedFileError."""
        if stored is None:
            return cls()
        try:
            fields = json.loads(stored)
            commits = tuple(map(Commit.from_json, fields["commits"]))
            return cls(commits, int(fields["lowest"]), int(fields["highest"]))
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedFileError(where, "its list of commits is none") from error
