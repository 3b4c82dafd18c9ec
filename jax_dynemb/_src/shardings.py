# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Names the ways in which a table lies on a mesh, and says what they have in common."""

from __future__ import annotations

from typing import Any

TABLE_WISE = "table_wise"
SHARDINGS = ("row_wise", TABLE_WISE, "column_wise", "replicated")


def sharding_name(given: Any) -> Any:
    """Returns our name of a sharding; TorchRec's enum and its names in capitals too.

    Args:
      given: what a user wrote; one of ``SHARDINGS`` comes out if it names one.
    """
    given = getattr(given, "value", given)
    name = given.lower() if isinstance(given, str) else given
    return "replicated" if name == "data_parallel" else name


def strategy_of(sharding: str) -> str:
    """Names the strategy that runs a sharding: table-wise tables have split rows."""
    return "row_wise" if sharding == TABLE_WISE else sharding


def splits_rows(sharding: str) -> bool:
    """Tells whether each row lies on one device, whole."""
    return strategy_of(sharding) == "row_wise"


def stacks_tables(sharding: str) -> bool:
    """Tells whether tables of one shape lie in the same arrays."""
    return sharding == TABLE_WISE


def splits_columns(sharding: str) -> bool:
    """Tells whether each device has a part of every row."""
    return sharding == "column_wise"
