# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of a collection and the features that look them up, by name."""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, TypeVar

from jax_dynemb.config import TableConfig

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Catalog:
    """The configs of a collection, found by the name of a table or of a feature.

    Attributes:
      configs: one for each table, in the order of the user.

    Raises:
      ValueError: there is no table, or a table or feature name occurs twice.
    """

    configs: tuple[TableConfig, ...]

    def __post_init__(self) -> None:
        """Checks that all names are unique."""
        if not self.configs:
            raise ValueError("Tables needs one TableConfig or more")
        _check_unique("table", [c.name for c in self.configs])
        _check_unique("feature", [f for c in self.configs for f in c.feature_names])

    @functools.cached_property
    def tables(self) -> dict[str, TableConfig]:
        """Configs by table name."""
        return {config.name: config for config in self.configs}

    @functools.cached_property
    def features(self) -> dict[str, str]:
        """Table names by feature name, in the order of the configs."""
        return {f: config.name for config in self.configs for f in config.feature_names}

    def table(self, name: str) -> TableConfig:
        """Finds a table.

        Raises:
          ValueError: there is no such table.
        """
        if name not in self.tables:
            raise ValueError(_unknown("Table", name, self.tables))
        return self.tables[name]

    def config_of(self, feature: str) -> TableConfig:
        """Finds the table that a feature looks up.

        Raises:
          ValueError: no table has the feature.
        """
        name = self.features.get(feature)
        if name is None:
            raise ValueError(_unknown("Feature", feature, self.features))
        return self.tables[name]

    def in_order(self, by_feature: Mapping[str, T]) -> OrderedDict[str, T]:
        """Sorts values by feature into the order of the configs."""
        return OrderedDict((f, by_feature[f]) for f in self.features if f in by_feature)


def _check_unique(what: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"{what} names must be unique, but {twice} occur twice; to share a table "
            "between features list them in its feature_names."
        )


def _unknown(what: str, name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(str(name), list(known), n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return f"{what} '{name}' is not known. Known: {sorted(known)}{hint}"
