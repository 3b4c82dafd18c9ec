# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of one collection that another one looks up in its own way."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from jax_dynemb._src.table import Tables


def sharing_rows(coll: Tables, tables: Iterable[Any]) -> Tables:
    """Returns the same tables, some with other features and another pooling.

    All else counts as in ``coll``; ValueError for an unknown table or another dim.
    """
    given = {table.name: table for table in tables}
    own = coll.tables
    for name, table in given.items():
        if name not in own or own[name].dim != table.dim:
            known = {each.name: each.dim for each in own.values()}
            raise ValueError(
                f"rows_of: there is no table '{name}' of dim {table.dim} in that "
                f"collection, only {known}: give configs with these names and dims."
            )
    return coll.with_tables(
        dataclasses.replace(
            table,
            feature_names=given[name].feature_names,
            pooling=given[name].pooling,
        )
        if name in given
        else table
        for name, table in own.items()
    )
