# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of live tables into stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jax_dynemb._src.engines import States
from jax_dynemb._src.files.live import check_whole, collection_of
from jax_dynemb._src.stores import Layout, Store
from jax_dynemb._src.table import Tables


def to_store(
    coll: Any,
    state: States | None = None,
    stores: Mapping[str, Store] | None = None,
    *,
    since: Mapping[str, int] | None = None,
    mirror: bool = False,
    step: int = 0,
) -> dict[str, int]:
    """Writes the rows of tables, their scores and optimizer states into stores.

    The tables stay as they are. ``commit`` of each store makes the rows last.

    Args:
      coll: the tables; or a module with one collection, such as ``model.sparse``.
      state: their state; None of a module, which has it.
      stores: by table.
      since: by table, what ``coll.get_score`` said when the rows were last written.
        Only rows that a lookup or an insert used since are written. A table that is
        not named is written whole.
      mirror: also discards rows whose ids the table no longer has. Without it they stay
        in the store.
      step: of the training.

    Returns:
      By table, how many rows were written.

    Raises:
      RuntimeError: a store has no room for a row; the others are written.
      ValueError: there is no such table, a store is for rows of another one, or other
        processes hold a part of the table.

    Example:
      >>> marks = coll.get_score(state)  # doctest: +SKIP
      >>> jde.export.to_store(coll, state, {"cat": log})  # doctest: +SKIP
      >>> log.commit("step-100")  # doctest: +SKIP
    """
    coll, state = collection_of("to_store", coll, state)
    stores = {} if stores is None else stores
    check_stores(coll, stores)
    written = dict.fromkeys(stores, 0)
    for name, store in stores.items():
        check_whole(coll, state, name)
        mark = (since or {}).get(name)
        known = store.keys() if mirror else None
        for chunk in coll.export(state, name, since=mark, known_keys=known):
            if chunk.removed is not None:
                store.discard(chunk.removed)
            if not len(chunk.keys):
                continue
            stored = store.put(chunk.keys, store.layout.pack(chunk), step)
            written[name] += int(stored.sum())
            if not stored.all():
                raise RuntimeError(
                    f"The store of table '{name}' has no room: it refused "
                    f"{int((~stored).sum())} of {len(stored)} rows. Raise "
                    "disk_gigabytes; the table still has every row."
                )
    return written


def check_stores(coll: Tables, stores: Mapping[str, Store] | Iterable[str]) -> None:
    """Raises unless each store is for a table of the collection, and not another's."""
    if not isinstance(stores, Mapping):
        raise TypeError("stores go by table: {'cat': store}, one for each table")
    for name, store in stores.items():
        config = coll.engine.catalog.dynamic_table(name, "a store")
        Layout.of(config).check_same(store.layout, f"the store of table '{name}'")
