# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Compares what a store says of its rows with the table above it."""

from __future__ import annotations

from jax_dynemb._src.rows import Identity, Relation
from jax_dynemb._src.stores import Identified, Store


def identity_below(store: Store) -> Identity | None:
    """Returns what a store says of its rows; None if it says or has nothing."""
    known = identity_noted(store)
    return known if known is not None and len(store.keys()) else None


def identity_noted(store: Store) -> Identity | None:
    """Returns what a store says, also where it has no rows."""
    return store.identity if isinstance(store, Identified) else None


def note_identity(store: Store, identity: Identity | None) -> None:
    """Notes of which table and moment the rows of a store are, if it can."""
    if isinstance(store, Identified):
        store.identity = identity


def check_below(store: Store, now: Identity | None, where: str) -> None:
    """Refuses a store with rows of another run, or newer than the table."""
    relation = _relation(now, identity_below(store))
    if relation is Relation.OTHER_RUN:
        raise ValueError(
            f"{where} has rows of another run. A new run begins with an empty store: "
            "store.discard(store.keys()), or another place. To go on with that run, "
            "restore its checkpoint with stores=."
        )
    if relation is not None:
        tag = store.stats().get("tag")
        at = "" if tag is None else f", whose last commit is {tag!r},"
        raise ValueError(
            f"{where}{at} has rows of a later moment than the table, or of a history "
            "that a restore left. Open the commit of the checkpoint: pass the stores "
            "that jde.checkpoint.restore(..., stores=stores) has opened, or call "
            "store.open(tag) first. jde.tiers.open_stores(coll) opens those of the "
            "tiers, and jde.tiers.prefetch_rows(..., stores=stores) takes them."
        )


def check_commit(
    known: Identity | None, now: Identity | None, where: str, tag: str
) -> None:
    """Refuses a commit that only has the name of a checkpoint's."""
    relation = _relation(now, known)
    if relation is None:
        return
    other = "run" if relation is Relation.OTHER_RUN else "history of this run"
    raise ValueError(
        f"{where} has rows of another {other} in its commit {tag!r}. Pass the store "
        "that this checkpoint was saved with, or restore a checkpoint that was saved "
        "with this one."
    )


def identity_at(store: Store, tag: str) -> Identity | None:
    """Returns what a commit says of its rows; None if the store tells only after it."""
    tell = getattr(store, "identity_at", None)
    return None if tell is None else tell(tag)


def _relation(now: Identity | None, known: Identity | None) -> Relation | None:
    """Says why rows do not go on; None if they do, or nothing tells."""
    if known is None or now is None:
        return None
    relation = now.relation(known)
    return None if relation in (Relation.SAME, Relation.CONTINUES) else relation
