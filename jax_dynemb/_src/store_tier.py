# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A host tier with a store below it, which holds the rows that the table evicts."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from typing import Any

from jax_dynemb._src.host_tier import HostTier, check_sizes

_SIZES: tuple[str, ...] = ("hbm_fraction", "hbm_rows", "hbm_gigabytes")
_HOST_SIZES: tuple[str, ...] = ("host_rows", "host_gigabytes")


@dataclasses.dataclass(frozen=True)
class SsdPlace:
    """Where the log of a table lies; see ``jde.stores.Log``.

    Attributes:
      path: the directory; the log of a table is in a folder of the table's name.
      disk_gigabytes: most that the log may take.
      keep: commits that a restore can go back to.
    """

    path: str
    disk_gigabytes: float | None = None
    keep: int = 4


@dataclasses.dataclass(frozen=True)
class StoreTier(HostTier):
    """Keeps hot rows in host and device memory, and the others in a store.

    ``jde.tiers.ssd`` and ``jde.tiers.external`` make it.

    Attributes:
      store: an ``SsdPlace``, a store, or a function from a ``TableConfig`` to one.
      host_rows: rows of the table in host memory; None: the table's capacity.
      host_gigabytes: the same as gigabytes of rows and optimizer states.
    """

    store: Any = None
    host_rows: int | None = None
    host_gigabytes: float | None = None

    def table_rows(self, capacity: int, row_bytes: int) -> int:
        """Computes the rows that a table has room for, above its store.

        Args:
          capacity: of the ``TableConfig``.
          row_bytes: of a row with its optimizer states.
        """
        if self.host_rows is not None:
            return self.host_rows
        if self.host_gigabytes is not None:
            return max(1, int(self.host_gigabytes * 1e9 / row_bytes))
        return capacity

    def conflict(self, config: Any) -> str | None:
        """Names the field of a config that a store excludes; None if there is none."""
        if not config.evicts:
            return (
                "a table that never evicts sends no row to a store: use "
                "on_full='evict' and a score_strategy that evicts, or "
                "tier=jde.tiers.host(...)"
            )
        return super().conflict(config)


def rows_above_store(config: Any) -> int:
    """Computes the rows that a table, maybe without a tier, has in memory."""
    tier = config.tier
    if not isinstance(tier, StoreTier):
        return config.capacity
    return tier.table_rows(config.capacity, row_bytes(config))


def row_bytes(config: Any) -> int:
    """Computes the bytes of a row and its optimizer states, which tiers hold."""
    states = sum(math.prod(spec.shape) for spec in config.states.values())
    row = config.dim * (4 if config.param_dtype == "float32" else 2)
    return row + 4 * states


def with_room(config: Any, rows: int) -> Any:
    """Makes the config of the same table with room for more rows in memory."""
    tier, capacity = config.tier, max(rows, config.capacity)
    if isinstance(tier, StoreTier) and (tier.host_rows or tier.host_gigabytes):
        tier = dataclasses.replace(tier, host_rows=rows, host_gigabytes=None)
    return dataclasses.replace(config, capacity=capacity, tier=tier)


def tier_problem(config: Any) -> str | None:
    """Says what is wrong with the tier of a table; None if nothing is."""
    if config.tier is None:
        return None
    if not isinstance(config.tier, HostTier):
        return (
            f"tier must be None or one of jde.tiers (host, ssd, external), not "
            f"{config.tier!r}: write tier=jde.tiers.host(hbm_fraction=0.125)"
        )
    return config.tier.conflict(config)


def ssd(
    path: str | os.PathLike[str],
    *,
    hbm_fraction: float | None = None,
    hbm_rows: int | None = None,
    hbm_gigabytes: float | None = None,
    host_rows: int | None = None,
    host_gigabytes: float | None = None,
    disk_gigabytes: float | None = None,
    keep: int = 4,
    spill_rows: int | None = None,
    ring_rows: int = 65_536,
) -> StoreTier:
    """Keeps the rows that a table evicts in files, and brings them back when needed.

    ``jde.tiers.prefetch_rows`` moves rows down and up while training runs. The index
    and the rows that lie in memory are those of ``jde.tiers.host``.

    Args:
      path: a directory on a disk of this machine. The ``jde.stores.Log`` of a table is
        in a folder of the table's name.
      hbm_fraction: as for ``host``, a share of the rows in host memory.
      hbm_rows: as for ``host``.
      hbm_gigabytes: as for ``host``.
      host_rows: rows of the table in host memory. None: the table's ``capacity``.
      host_gigabytes: the same as gigabytes of rows and optimizer states.
      disk_gigabytes: most that the files of a table may take; None: any number.
      keep: commits that stay, at least one more than checkpoints do.
      spill_rows: as for ``host``.
      ring_rows: rows of each device that may leave in one step. More newcomers than
        that are refused; ``ring_full`` of ``stats`` counts them.

    Returns:
      What ``TableConfig(tier=...)`` takes.

    Raises:
      ValueError: more than one size of a memory is given, or a number is not above 0.

    Example:
      >>> tier = jde.tiers.ssd("rows", hbm_fraction=0.125, host_rows=10_000_000)
      >>> jde.TableConfig("item", 64, 1_000_000_000, tier=tier)
    """
    others = {"disk_gigabytes": disk_gigabytes, "keep": keep}
    where = os.fspath(path)
    if not isinstance(where, str) or not where:
        raise ValueError(f"tiers.ssd: path must name a directory, not {path!r}.")
    return _tier(
        "tiers.ssd",
        SsdPlace(where, disk_gigabytes, keep),
        (hbm_fraction, hbm_rows, hbm_gigabytes),
        (host_rows, host_gigabytes),
        (spill_rows, ring_rows),
        others,
    )


def external(
    store: Any | Callable[[Any], Any],
    *,
    hbm_fraction: float | None = None,
    hbm_rows: int | None = None,
    hbm_gigabytes: float | None = None,
    host_rows: int | None = None,
    host_gigabytes: float | None = None,
    spill_rows: int | None = None,
    ring_rows: int = 65_536,
) -> StoreTier:
    """Keeps the rows that a table evicts in any store, such as a server.

    Args:
      store: what a ``jde.stores.Store`` is, for this one table; or a function from a
        ``TableConfig`` to one. The function is called when the store is needed, so
        one function serves many tables.
      hbm_fraction: as for ``host``, a share of the rows in host memory.
      hbm_rows: as for ``host``.
      hbm_gigabytes: as for ``host``.
      host_rows: rows of the table in host memory. None: the table's ``capacity``.
      host_gigabytes: the same as gigabytes of rows and optimizer states.
      spill_rows: as for ``host``.
      ring_rows: rows of each device that may leave in one step. More newcomers than
        that are refused; ``ring_full`` of ``stats`` counts them.

    Returns:
      What ``TableConfig(tier=...)`` takes.

    Raises:
      TypeError: it is no store, or cannot be hashed.
      ValueError: more than one size of a memory is given, or a number is not above 0.

    Example:
      >>> redis = lambda table: jde.stores.Redis("redis://localhost", table)
      >>> tier = jde.tiers.external(redis, hbm_fraction=0.125)  # doctest: +SKIP
    """
    is_store = all(hasattr(store, name) for name in ("get", "put", "discard"))
    if isinstance(store, type) or not (is_store or callable(store)):
        raise TypeError(
            f"tiers.external takes a store, such as jde.stores.Redis(url, table), or a "
            f"function from a TableConfig to one, such as lambda table: "
            f"jde.stores.Memory(table); not {store!r}."
        )
    return _tier(
        "tiers.external",
        store,
        (hbm_fraction, hbm_rows, hbm_gigabytes),
        (host_rows, host_gigabytes),
        (spill_rows, ring_rows),
        {},
    )


def _tier(
    call: str,
    store: Any,
    hbm: tuple[float | None, int | None, float | None],
    host: tuple[int | None, float | None],
    rings: tuple[int | None, int],
    others: dict[str, float | None],
) -> StoreTier:
    sizes: dict[str, float | None] = dict(zip(_SIZES, hbm, strict=True))
    check_sizes(call, sizes, others | {"spill_rows": rings[0], "ring_rows": rings[1]})
    of_host: dict[str, float | None] = dict(zip(_HOST_SIZES, host, strict=True))
    check_sizes(call, of_host, {})
    return StoreTier(
        *hbm,
        *rings,
        store=store,
        host_rows=host[0],
        host_gigabytes=host[1],
    )
