# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""OneEmbedding's options of stores, tables and initialisers, in the core's terms."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import jax

from jax_dynemb._src import initializers
from jax_dynemb._src.host_tier import HostTier, host
from jax_dynemb._src.store_tier import ssd

_BLOCKS = (512, 4096)
Paths = str | os.PathLike[str] | Sequence[str]


@dataclasses.dataclass(frozen=True)
class StoreOptions:
    """Says where the rows of a ``MultiTableEmbedding`` lie, and how many there are.

    Attributes:
      capacity: rows of all tables and devices; None: as many as a cache has room for.
      tier: as for ``jde.TableConfig``.
    """

    capacity: int | None
    tier: HostTier | None = None


def make_device_mem_store_options(
    persistent_path: Paths,
    capacity: int,
    size_factor: int = 1,
    storage_dim: int = -1,
    physical_block_size: int = 4096,
) -> StoreOptions:
    """Keeps all rows in device memory.

    Args:
      persistent_path: where OneEmbedding writes snapshots. Checked, and not used:
        ``jde.checkpoint.save`` takes a directory.
      capacity: rows of all tables and devices.
      size_factor: passed over: the optimizer says how many states a row has.
      storage_dim: passed over, likewise.
      physical_block_size: 512 or 4096, passed over.

    Raises:
      ValueError: a number or a list of paths that OneEmbedding refuses too.
    """
    _check(capacity, size_factor, storage_dim, physical_block_size)
    rank_path(persistent_path)
    return StoreOptions(int(capacity))


def make_cached_host_mem_store_options(
    cache_budget_mb: float,
    persistent_path: Paths,
    capacity: int,
    size_factor: int = 1,
    storage_dim: int = -1,
    physical_block_size: int = 4096,
) -> StoreOptions:
    """Keeps rows in host memory, those in use in device memory too.

    Args:
      cache_budget_mb: megabytes of each device for rows and optimizer states.
      persistent_path: as for ``make_device_mem_store_options``.
      capacity: rows of all tables and devices.
      size_factor: passed over, as the two below.
      storage_dim: passed over.
      physical_block_size: passed over.
    """
    _check(capacity, size_factor, storage_dim, physical_block_size)
    rank_path(persistent_path)
    return StoreOptions(int(capacity), host(hbm_gigabytes=_gigabytes(cache_budget_mb)))


def make_cached_ssd_store_options(
    cache_budget_mb: float,
    persistent_path: Paths,
    capacity: int | None = None,
    size_factor: int = 1,
    storage_dim: int = -1,
    physical_block_size: int = 4096,
    host_cache_budget_mb: float = 0,
) -> StoreOptions:
    """Keeps rows on an SSD, hot ones in host memory and those in use on the device.

    Args:
      cache_budget_mb: megabytes of each device for rows and optimizer states.
      persistent_path: a directory, in which each process has a folder ``rank-world``;
        or one directory for each process.
      capacity: rows in host memory, over all tables; None: of the host's budget.
      size_factor: passed over, as the two below.
      storage_dim: passed over.
      physical_block_size: passed over.
      host_cache_budget_mb: megabytes of host memory. 0: rows of ``capacity``, since
        each row in device memory has a place in host memory.

    Raises:
      ValueError: there is no cache on the device, or no size of the host's part.
    """
    _check(capacity, size_factor, storage_dim, physical_block_size)
    if not cache_budget_mb > 0 or (capacity is None and not host_cache_budget_mb > 0):
        raise ValueError(
            "make_cached_ssd_store_options: rows in use lie in device memory, and hot "
            "ones in host memory: give cache_budget_mb above 0, and capacity or "
            "host_cache_budget_mb."
        )
    tier = ssd(
        rank_path(persistent_path),
        hbm_gigabytes=_gigabytes(cache_budget_mb, jax.local_device_count()),
        host_gigabytes=_gigabytes(host_cache_budget_mb, devices=1) or None,
    )
    return StoreOptions(None if capacity is None else int(capacity), tier)


def make_table_options(param: Any) -> initializers.Initializer:
    """Returns the initializer of a table.

    Args:
      param: what a ``make_..._initializer`` returned.

    Raises:
      ValueError: several columns, of which each has an initializer.
    """
    if isinstance(param, initializers.Initializer):
        return param
    raise ValueError(
        f"make_table_options takes one initializer, not {param!r}: columns of several "
        "widths are tables here. Write a jde.TableConfig for each, with its dim and "
        "its initializer, for jde.nnx.EmbeddingCollection."
    )


def make_uniform_initializer(low: float = 0.0, high: float = 1.0) -> Any:
    """Makes ``jde.initializers.uniform(low, high)``."""
    return initializers.uniform(low, high)


def make_normal_initializer(mean: float = 0.0, std: float = 1.0) -> Any:
    """Makes ``jde.initializers.normal(std, mean)``."""
    return initializers.normal(std, mean)


def make_constant_initializer(value: float) -> Any:
    """Makes ``jde.initializers.constant(value)``."""
    return initializers.constant(value)


def make_trunc_normal_initializer(
    mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> Any:
    """Makes ``jde.initializers.truncated_normal(std, mean, a, b)``."""
    return initializers.truncated_normal(std, mean, a, b)


def rank_path(given: Paths) -> str:
    """Returns the directory of this process: one of a list, or a folder of its own.

    Raises:
      ValueError: a list of another length than there are processes.
    """
    rank, world = jax.process_index(), jax.process_count()
    if isinstance(given, (str, os.PathLike)):
        return os.path.join(os.fspath(given), f"{rank}-{world}")
    if len(given) != world:
        raise ValueError(
            f"persistent_path has {len(given)} paths for {world} processes: give one "
            "for each, or one str for all."
        )
    return os.fspath(given[rank])


def _gigabytes(megabytes: float, devices: int | None = None) -> float:
    """Gigabytes over all devices; OneEmbedding counts MiB of one."""
    devices = jax.device_count() if devices is None else devices
    return megabytes * 2**20 / 1e9 * devices


def _check(capacity: Any, size_factor: Any, storage_dim: Any, block: Any) -> None:
    if capacity is not None and not capacity > 0:
        raise ValueError(f"capacity must be above 0, not {capacity!r}.")
    if size_factor < 1 or not (storage_dim == -1 or storage_dim > 0):
        raise ValueError(
            f"size_factor must be 1 or more and storage_dim -1 or more than 0, not "
            f"{size_factor!r} and {storage_dim!r}: leave them out, since the optimizer "
            "says how many states a row has."
        )
    if block not in _BLOCKS:
        raise ValueError(f"physical_block_size must be one of {_BLOCKS}, not {block}.")
