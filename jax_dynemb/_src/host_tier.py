# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows in host memory, those in use in frames of device memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.shardings import splits_rows

LEAST_FRAMES = 1
_DEFAULT_FRAMES = 8
_LEAST_SPILL = 4096
_SPILL_SHARE = 8  # of the frames


@dataclasses.dataclass(frozen=True)
class HostTier:
    """Keeps the rows of a table in host memory; made by ``jde.tiers.host``.

    Attributes:
      hbm_fraction: the share of the table's rows that device memory holds.
      hbm_rows: rows that device memory holds, over all shards.
      hbm_gigabytes: gigabytes of rows and optimizer states in device memory, over all
        shards.
      spill_rows: rows of each device on their way home; None: an eighth of its frames,
        but at least 4,096.
      ring_rows: of a table above a store, evicted rows that each device keeps until
        ``Tables.take_departed``; 0: evicted rows are lost.
    """

    hbm_fraction: float | None = None
    hbm_rows: int | None = None
    hbm_gigabytes: float | None = None
    spill_rows: int | None = None
    ring_rows: int = 0

    def frames(self, table: str, num_buckets: int, row_bytes: int) -> int:
        """Computes the frames of each bucket of 128 slots.

        A number of rows or bytes is the most that may be used, so one that is more than
        64 frames gives 64.

        Args:
          table: its name.
          num_buckets: of the whole table.
          row_bytes: of a row with its optimizer states.

        Raises:
          ValueError: no frame, or a fraction of more than 64.
        """
        slots, most = (_ffi.constants()[n] for n in ("bucket_capacity", "most_frames"))
        if self.hbm_fraction is not None:
            frames = round(slots * self.hbm_fraction)
        elif self.hbm_rows is not None:
            frames = min(self.hbm_rows // num_buckets, most)
        elif self.hbm_gigabytes is not None:
            rows = int(self.hbm_gigabytes * 1e9 / row_bytes)
            frames = min(rows // num_buckets, most)
        else:
            frames = _DEFAULT_FRAMES
        if LEAST_FRAMES <= frames <= most:
            return frames
        least_rows = LEAST_FRAMES * num_buckets
        raise ValueError(
            f"Table '{table}': its tier leaves {frames} of each {slots} rows in device "
            f"memory; {LEAST_FRAMES} to {most} can be. Give hbm_fraction from "
            f"{LEAST_FRAMES / slots} to {most / slots}, hbm_rows of {least_rows} or "
            f"more, or hbm_gigabytes of {least_rows * row_bytes / 1e9:.6g} or more; a "
            "table of which more fits needs no tier."
        )

    def conflict(self, config: Any) -> str | None:
        """Names the field of a config that a tier excludes; None if there is none."""
        if not splits_rows(config.sharding):
            return (
                f"a table with a tier cannot have sharding={config.sharding!r}: use "
                "sharding='row_wise' or 'table_wise', or leave tier out"
            )
        if config.row_format is not None:
            return "a frozen table of packed rows has no tier: leave tier out"
        if config.state_dtype:
            return (
                "a table with a tier has float32 states: leave state_dtype out, or tier"
            )
        return None

    def spilled(self, local_buckets: int, frames: int) -> int:
        """Computes the spill rows of a shard.

        Args:
          local_buckets: of the shard.
          frames: of each bucket.
        """
        slots = local_buckets * _ffi.constants()["bucket_capacity"]
        rows = self.spill_rows
        if rows is None:
            rows = max(_LEAST_SPILL, local_buckets * frames // _SPILL_SHARE)
        return min(rows, slots)


def host(
    *,
    hbm_fraction: float | None = None,
    hbm_rows: int | None = None,
    hbm_gigabytes: float | None = None,
    spill_rows: int | None = None,
) -> HostTier:
    """Keeps a table's rows in host memory, and those in use in device memory.

    Keys and scores stay in device memory. Results are those of a table without a tier,
    bit for bit: a small cache makes steps slower, never different.

    Args:
      hbm_fraction: the share of the rows that device memory holds, 1/128 to 1/2.
      hbm_rows: the same as a number of rows. Of more than half of them half is used.
      hbm_gigabytes: the same as gigabytes of rows and optimizer states. Without any of
        the three it is a sixteenth of the rows.
      spill_rows: rows of each device on their way home. An update of more rows than
        that without a place in device memory takes several rounds. If a batch has more
        ids, the host of a GPU waits for the device at the end of each step. Recorded
        loops do not wait (``jde.compiler_options``). None: an eighth of the rows in
        device memory, but at least 4,096.

    Returns:
      What ``TableConfig(tier=...)`` takes.

    Raises:
      ValueError: more than one size is given, or a number is not above 0.

    Example:
      >>> jde.TableConfig("item", 64, 100_000, tier=jde.tiers.host(hbm_fraction=0.125))
    """
    sizes = {
        "hbm_fraction": hbm_fraction,
        "hbm_rows": hbm_rows,
        "hbm_gigabytes": hbm_gigabytes,
    }
    check_sizes("tiers.host", sizes, {"spill_rows": spill_rows})
    return HostTier(hbm_fraction, hbm_rows, hbm_gigabytes, spill_rows)


def hbm_shares() -> tuple[float, float]:
    """Returns the least and the largest share of rows that device memory can hold."""
    slots, most = (_ffi.constants()[n] for n in ("bucket_capacity", "most_frames"))
    return LEAST_FRAMES / slots, most / slots


def nearest_share(share: float) -> float:
    """Returns the share of rows that a tier can have which is nearest to another."""
    least, most = hbm_shares()
    return min(max(share, least), most)


def check_sizes(
    call: str, sizes: Mapping[str, float | None], others: Mapping[str, float | None]
) -> None:
    """Refuses numbers that are not above 0, and more than one of ``sizes``.

    ``others`` may be given beside it; None: not given.
    """
    given = {name: size for name, size in sizes.items() if size is not None}
    if len(given) > 1:
        *first, last = sizes
        raise ValueError(
            f"{call} takes one of {', '.join(first)} and {last}, not {sorted(given)}; "
            "leave the others out."
        )
    given |= {name: size for name, size in others.items() if size is not None}
    for name, size in given.items():
        if isinstance(size, bool) or not 0 < size < math.inf:
            raise ValueError(f"{call}: {name} must be above 0, not {size!r}.")
