# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Compares what a store says of its rows with the table above it."""

from __future__ import annotations

from jax_dynemb.rows import Identity, Relation
from jax_dynemb.stores import Identified, Store


def identity_below(store: Store) -> Identity | None:
    """Returns what a store says of its rows; None if it says or has nothing."""
    known = store.identity if isinstance(store, Identified) else None
    return known if known is not None and len(store.keys()) else None


def note_identity(store: Store, identity: Identity | None) -> None:
    """Notes of which table and moment the rows of a store are, if it can."""
    if isinstance(store, Identified):
        store.identity = identity


def check_below(
    store: Store, now: Identity | None, where: str, *, empty: bool = True
) -> None:
    """Refuses a store whose rows a table does not go on with.

    Args:
      store: below the table.
      now: of the table.
      where: names the store.
      empty: whether any store without rows will do.

    Raises:
      ValueError: its rows are of another run, or newer than the table.
    """
    known = store.identity if isinstance(store, Identified) else None
    if known is None or now is None or (empty and not len(store.keys())):
        return
    relation = now.relation(known)
    if relation is Relation.OTHER_RUN:
        raise ValueError(
            f"{where} has rows of another run. A new run begins with an empty store: "
            "store.discard(store.keys()), or another place. To go on with that run, "
            "restore its checkpoint with stores=."
        )
    if relation not in (Relation.SAME, Relation.CONTINUES):
        tag = store.stats().get("tag")
        at = "" if tag is None else f", at commit {tag!r},"
        raise ValueError(
            f"{where}{at} has rows of a later moment than the table, or of a history "
            "that a restore left. Open the commit of the checkpoint: pass the stores "
            "that jde.checkpoint.restore(..., stores=stores) has opened, or call "
            "store.open(tag) first."
        )
