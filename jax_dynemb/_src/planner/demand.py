# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How many ids and bags of each table a step has on a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.planner.checks import PlannerError, PlannerErrorType
from jax_dynemb._src.planner.constraints import ParameterConstraints


@dataclasses.dataclass(frozen=True)
class Demand:
    """Counts what a step has of one table on each device."""

    # The table, with the pooling factors and the dtype of the constraints.
    config: TableConfig
    constraints: ParameterConstraints
    ids: Mapping[str, int]  # by feature
    bags: Mapping[str, int]  # by feature; the ids where the table does not pool

    @property
    def name(self) -> str:
        """Returns the name of the table."""
        return self.config.name

    @property
    def num_ids(self) -> int:
        """Ids of all features."""
        return sum(self.ids.values())

    @property
    def num_bags(self) -> int:
        """Rows that a lookup returns for all features."""
        return sum(self.bags.values())


def core_config(config: Any) -> TableConfig:
    """Returns a config, made from one of TorchRec's where it is one; or TypeError."""
    made = config.to_table() if hasattr(config, "to_table") else config
    if not isinstance(made, TableConfig):
        raise TypeError(
            f"plan takes a list of TableConfig, not {kind_of(made)}. Leave tensor "
            "trains out: every device has their cores."
        )
    return made


def demand_of(
    config: TableConfig, constraints: ParameterConstraints, batch_size: int
) -> Demand:
    """Applies a table's constraints to its config; PlannerError if they do not fit."""
    features = config.feature_names
    named = constraints.feature_names
    if named is not None and set(named) != set(features):
        _fail(config, f"feature_names are {list(named)}, but its features {features}")
    default = config.pooling_factors or (1.0,) * len(features)
    factors = _numbers(config, features, "pooling_factors", constraints, default)
    poolings = _numbers(config, features, "num_poolings", constraints, (1.0,))
    sizes = _numbers(config, features, "batch_sizes", constraints, (batch_size,))
    bags = [round(size * n) for size, n in zip(sizes, poolings, strict=True)]
    ids = [round(n * factor) for n, factor in zip(bags, factors, strict=True)]
    changes: dict[str, Any] = {}
    if constraints.pooling_factors:
        changes["pooling_factors"] = tuple(factors)
    if constraints.output_dtype is not None:
        changes["dtype"] = constraints.output_dtype
    effective = dataclasses.replace(config, **changes) if changes else config
    returned = ids if config.pooling is None else bags
    by_feature = dict(zip(features, ids, strict=True))
    return Demand(
        effective, constraints, by_feature, dict(zip(features, returned, strict=True))
    )


def _numbers(
    config: TableConfig,
    features: Sequence[str],
    field: str,
    constraints: ParameterConstraints,
    default: Sequence[float],
) -> Sequence[float]:
    given = getattr(constraints, field) or default
    if len(given) == 1:
        return [given[0]] * len(features)
    if len(given) != len(features):
        _fail(config, f"{field} has {len(given)} numbers for the features {features}")
    return given


def _fail(config: TableConfig, what: str) -> NoReturn:
    raise PlannerError(
        f"the constraints of table '{config.name}' do not fit: {what}. Give one for "
        "each feature of its TableConfig, or leave the constraint out.",
        PlannerErrorType.STRICT_CONSTRAINTS,
    )
