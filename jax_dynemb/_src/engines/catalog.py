# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of a collection and the features that look them up, by name."""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from jax_dynemb._src.config import TableConfig


class AnyConfig(Protocol):
    """A table of any kind, as far as a collection finds it by name."""

    @property
    def name(self) -> str:
        """Returns the table's name."""
        ...

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features that look it up."""
        ...


C = TypeVar("C", bound=AnyConfig)


@dataclasses.dataclass(frozen=True)
class Catalog(Generic[C]):
    """The configs of a collection, found by the name of a table or of a feature.

    Attributes:
      configs: one for each table, in the order of the user.

    Raises:
      ValueError: there is no table, or a table or feature name occurs twice.
    """

    configs: tuple[C, ...]

    def __post_init__(self) -> None:
        """Checks that all names are unique."""
        if not self.configs:
            raise ValueError("Tables needs one TableConfig or more")
        _check_unique("table", [c.name for c in self.configs])
        _check_unique("feature", [f for c in self.configs for f in c.feature_names])

    @functools.cached_property
    def tables(self) -> dict[str, C]:
        """Configs by table name."""
        return {config.name: config for config in self.configs}

    @functools.cached_property
    def features(self) -> dict[str, str]:
        """Table names by feature name, in the order of the configs."""
        return {f: config.name for config in self.configs for f in config.feature_names}

    @functools.cached_property
    def by_feature(self) -> dict[str, C]:
        """Configs by feature name, in the order of the configs."""
        return {f: config for config in self.configs for f in config.feature_names}

    @functools.cached_property
    def dynamic(self) -> dict[str, TableConfig]:
        """Configs of the dynamic tables, whose rows are arrays, by table name."""
        return {n: c for n, c in self.tables.items() if isinstance(c, TableConfig)}

    def dynamic_table(self, name: str, call: str) -> TableConfig:
        """Finds a dynamic table.

        Args:
          name: of the table.
          call: what needs it.

        Raises:
          ValueError: there is no such table, or it is a tensor train.
        """
        self.table(name)
        if name not in self.dynamic:
            raise ValueError(
                f"{call}: table '{name}' is a tensor train (jde.TTConfig), which "
                "stores cores and no rows of its own. Use a jde.TableConfig where "
                f"rows come and go, or leave '{name}' out of this call."
            )
        return self.dynamic[name]

    def table(self, name: str) -> C:
        """Finds a table.

        Raises:
          ValueError: there is no such table.
        """
        if name not in self.tables:
            raise ValueError(_unknown("Table", name, self.tables))
        return self.tables[name]

    def config_of(self, feature: str) -> C:
        """Finds the table that a feature looks up.

        Raises:
          ValueError: no table has the feature.
        """
        if feature in self.by_feature:
            return self.by_feature[feature]
        if feature in self.tables:
            raise ValueError(
                f"'{feature}' is a table, but this call takes ids by feature. Its "
                f"features are {list(self.tables[feature].feature_names)}."
            )
        raise ValueError(_unknown("Feature", feature, self.features))


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
