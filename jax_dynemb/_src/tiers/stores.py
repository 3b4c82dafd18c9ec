# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The stores below the tables of a collection."""

from __future__ import annotations

import contextlib
import errno
import warnings
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import jax

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import States
from jax_dynemb._src.store_identity import check_below, identity_below
from jax_dynemb._src.store_tier import SsdPlace, StoreTier
from jax_dynemb._src.stores import Layout, Log, Store
from jax_dynemb._src.table import Tables, identity_in

Together = Callable[[Callable[[], None]], None]
_NO_FOLDER = (NotADirectoryError, PermissionError, FileNotFoundError, FileExistsError)


class OpenStores(dict[str, Store]):
    """Holds stores by table name, and closes them at the end of a ``with``."""

    def close(self) -> None:
        """Closes the stores that can be closed; rows since the last commit are gone."""
        with contextlib.ExitStack() as stack:
            for store in self.values():
                stack.callback(getattr(store, "close", lambda: None))

    def __enter__(self) -> OpenStores:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_stores(coll: Tables) -> OpenStores:
    """Opens the stores that the tiers of some tables name.

    A log begins with its last commit. Pass the result to ``jde.checkpoint.restore``,
    which opens the commit of the checkpoint, and to ``jde.tiers.prefetch_rows``. Where
    several processes share a mesh, each opens the stores of its devices: of
    ``jde.tiers.ssd`` in a folder such as "0-of-2".

    Args:
      coll: the tables; those whose tier has no store are passed over.

    Returns:
      Stores by table name; ``close()``, or ``with``, closes them.

    Raises:
      DamagedFileError: a file is not what was written.
      OSError: a path of ``jde.tiers.ssd`` is no directory, or refuses.
      RuntimeError: another program writes to a log.
      TypeError: a function of ``jde.tiers.external`` returned no store.
      ValueError: a store keeps rows of another table.

    Example:
      >>> with jde.tiers.open_stores(coll) as stores:  # doctest: +SKIP
      ...     jde.checkpoint.restore(path, tree, tables=coll, stores=stores)
    """
    stores = OpenStores()
    try:
        for config in tables_with_stores(coll):
            stores[config.name] = _opened(config, _folder_of_process(coll))
        check_stores(coll, stores)
    except BaseException:
        stores.close()
        raise
    return stores


def tables_with_stores(coll: Tables) -> list[TableConfig]:
    """Selects the tables whose tier has a store."""
    dynamic = coll.engine.catalog.dynamic.values()
    return [config for config in dynamic if isinstance(config.tier, StoreTier)]


def check_stores(coll: Tables, stores: Mapping[str, Store]) -> None:
    """Raises unless there is one store for each table whose tier has one."""
    expected = {config.name: config for config in tables_with_stores(coll)}
    if missing := sorted(expected.keys() - stores.keys()):
        raise ValueError(
            f"There is no store for the tables {missing}. Give stores={{name: store}} "
            "for each of them, or leave stores out: jde.tiers.open_stores opens all."
        )
    if extra := sorted(stores.keys() - expected.keys()):
        raise ValueError(
            f"The tables {extra} have no store in their tier. Give them "
            "tier=jde.tiers.ssd(...) or jde.tiers.external(...), or leave them out."
        )
    for name, store in stores.items():
        if not isinstance(store, Store):
            raise TypeError(
                f"The store of table '{name}' is {store!r}, which lacks methods of "
                "jde.stores.Store. Return a store from the function that "
                "jde.tiers.external received."
            )
        where = f"the store of table '{name}'"
        Layout.of(expected[name]).check_same_table(store.layout, where)


def check_sizes(coll: Tables, stores: Collection[str], state: States) -> None:
    """Raises unless a state is that of these tables in this size."""
    for name in stores:
        arrays = state.get(coll.state_name(name))
        tier = getattr(arrays, "tier", None)
        if tier is None:
            continue  # the next call says what is missing
        parts = coll.engine.extent(name).get("places", 1)
        local = coll.hash_engine.layout.stack_of(name).local
        slots = local.shards * local.local_slots  # more than the table's, where uneven
        have = tier.location.shape[0] // parts
        if have != slots:
            raise ValueError(
                f"Table '{name}' has room for {have} rows in this state, and for "
                f"{slots} in the tables of the prefetcher. Call prefetcher.use(coll) "
                "with the tables that grow returned."
            )


def check_first(
    coll: Tables, stores: Mapping[str, Store], state: States, together: Together
) -> None:
    """Warns of rows below empty tables, beside what ``check_moment`` refuses."""
    stats = coll.stats(state)
    check_moment(coll, stores, state, together)
    known = {n: s for n, s in stores.items() if not stats[f"{n}/rows"]}
    old = [n for n, s in known.items() if identity_below(s) is None and len(s.keys())]
    if old:
        warnings.warn(
            f"The tables {old} are empty, but their stores have rows, which come "
            "back as batches need them. For a new run call store.discard("
            "store.keys()) first; else restore the checkpoint.",
            RuntimeWarning,
            stacklevel=3,
        )


def check_moment(
    coll: Tables, stores: Mapping[str, Store], state: States, together: Together
) -> None:
    """Refuses stores whose rows are of another run or later than a prefetcher's state.

    ``together`` runs a check that may fail in one process, and then fails in all.
    """
    moments = {name: identity_in(coll, state, name) for name in sorted(stores)}

    def check() -> None:
        for name, moment in moments.items():
            check_below(stores[name], moment, f"The store of table '{name}'")

    together(check)


def _folder_of_process(coll: Tables) -> str:
    """Names the folder of this process's logs; "" where it has all rows."""
    if not coll.hash_engine.layout.spans_processes:
        return ""
    return f"{jax.process_index()}-of-{jax.process_count()}"


def _opened(config: TableConfig, of_process: str) -> Any:
    tier = config.tier
    assert isinstance(tier, StoreTier)
    if isinstance(tier.store, SsdPlace):
        return _opened_log(config, tier.store, of_process)
    return tier.store if isinstance(tier.store, Store) else tier.store(config)


def _opened_log(config: TableConfig, place: SsdPlace, of_process: str) -> Log:
    folder = Path(place.path) / of_process / config.name
    try:
        return Log(folder, config, disk_gigabytes=place.disk_gigabytes, keep=place.keep)
    except OSError as error:
        if not isinstance(error, _NO_FOLDER) and error.errno != errno.EROFS:
            raise
        raise type(error)(
            error.errno,
            f"{error.strerror}. Table '{config.name}' keeps its log there: give "
            "jde.tiers.ssd a directory that this user may write to",
            str(folder),
        ) from error
