# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which table and moment the rows below are of: a feed goes on with no other state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax_dynemb._src.rows import Identity, Relation
from jax_dynemb._src.store_identity import identity_below, note_identity
from jax_dynemb._src.stores import Store


class Moments:
    """Compares states that a feed gets, the first with what stores say; one thread."""

    def __init__(self, stores: Mapping[str, Store]):
        self._stores = stores
        self._latest = {name: identity_below(each) for name, each in stores.items()}

    def go_on(self, departed: Any) -> None:
        """Takes the state that rows departed from, of this run; waits for the device.

        It comes before any of its rows moves, so the stores stay as they were.
        """
        for name, store in self._stores.items():
            now = departed.identity(name)
            if now is None:
                continue
            _check(name, self._latest[name], now)
            self._latest[name] = now
            note_identity(store, now)


def _check(name: str, latest: Identity | None, now: Identity) -> None:
    relation = Relation.SAME if latest is None else now.relation(latest)
    if relation in (Relation.SAME, Relation.CONTINUES):
        return
    other = "another run"
    if relation is not Relation.OTHER_RUN:
        other = "an earlier moment, or of a history that was left"
    raise ValueError(
        f"Table '{name}': the feed got a state of {other}, but the rows in its store "
        "go with the state that feed.next returned last. Give it the state that the "
        "step made of that one; after a restore make a new feed, with the stores that "
        "jde.checkpoint.restore(..., stores=stores) has opened."
    )
