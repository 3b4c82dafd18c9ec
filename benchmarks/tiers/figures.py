# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Lists what a tiered step is compared with: the bus, and figures of others."""

from __future__ import annotations

# Records in order, one slot of 280, both ways at once, each way a second: measured
# by `bus.cu` with PCIe Gen5 x16. Small records are limited by their number, large ones
# by their bytes: random slots as in a step, on an H100 and on an H200.
BUS_RECORDS_PER_SECOND = 40e6
BUS_BYTES_PER_SECOND = 38.4e9
MOST_OVER_BYTES = 1.25  # a tiered step may take untiered + 1.25 x bytes / bus
MOST_OVER_UNTIERED = 1.10  # where every row has a frame
# Milliseconds of a step of workload t with 19 % of the rows in HBM, without prefetch.
TARGETS = {"adam": 5.5, "sgd": 2.2}

# Others, 10 tables of 26.8 M rows, the same batch, on an H100 of the same bus: training
# and evaluation, ms. A share is that of the distinct keys of their run.
PEERS = {
    "DynamicEmb caching 0.8": {"adam": (24.3, 3.5), "sgd": (20.8, 3.3)},
    "DynamicEmb caching 1.0": {"adam": (12.3, 1.2), "sgd": (10.9, 1.2)},
    "DynamicEmb hybrid, 10 % HBM": {"adam": (33.3, 20.5), "sgd": (27.2, 17.9)},
    "DynamicEmb host only": {"adam": (43.5, 28.5), "sgd": (35.5, 24.2)},
    "FBGEMM MANAGED_CACHING 0.8": {"adam": (15.0, 4.0), "sgd": (4.8, 4.0)},
    "FBGEMM MANAGED_CACHING 1.0": {"adam": (14.4, 3.4), "sgd": (4.2, 3.4)},
    "FBGEMM UVM": {"adam": (24.1, 8.1), "sgd": (13.6, 8.0)},
}


def bus_ms(records: float, record_bytes: int) -> float:
    """Milliseconds of the bus for so many records each way."""
    seconds = max(
        records / BUS_RECORDS_PER_SECOND, records * record_bytes / BUS_BYTES_PER_SECOND
    )
    return 1e3 * seconds


def longest_allowed(untiered_ms: float, records: float, record_bytes: int) -> float:
    """Milliseconds that a tiered step may take for the records that it moves.

    Args:
      untiered_ms: the same step, where all rows are in HBM.
      records: of a step, each way.
      record_bytes: of each.
    """
    bus = bus_ms(records, record_bytes)
    return max(MOST_OVER_UNTIERED * untiered_ms, untiered_ms + MOST_OVER_BYTES * bus)
