# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Restricts where a table may lie, and corrects what is known about its features."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Sequence
from typing import Any

from jax_dynemb._src.planner.checks import check_number, check_whole
from jax_dynemb._src.shardings import SHARDINGS, sharding_name

_WHERE = "ParameterConstraints"


class ShardingType(str, enum.Enum):  # noqa: UP042 (str() gives TorchRec's text)
    """Names ways to place a table, with TorchRec's words; the last three are refused.

    DATA_PARALLEL is the sharding ``"replicated"``.
    """

    DATA_PARALLEL = "data_parallel"
    TABLE_WISE = "table_wise"
    COLUMN_WISE = "column_wise"
    ROW_WISE = "row_wise"
    TABLE_ROW_WISE = "table_row_wise"
    TABLE_COLUMN_WISE = "table_column_wise"
    GRID_SHARD = "grid_shard"


_ONE_AXIS_LESS = {
    "table_row_wise": "axis=('host', 'device') splits rows over hosts and devices, and "
    "'row_wise' over axis='device' alone keeps each table within a host",
    "table_column_wise": "'column_wise' over axis='device' alone keeps the columns of "
    "a row within a host",
    "grid_shard": "'column_wise' over axis='device', with the tables replicated over "
    "the axis 'host', splits columns within a host",
}
_REFUSED = {
    "cache_params": "there is no cache: a table lies in device memory as a whole",
    "enforce_hbm": "every table lies in device memory",
    "device_group": "a plan is for one mesh; give jde.Tables the mesh of those devices",
    "key_value_params": "every table is a hash table; set TableConfig(capacity=...)",
}


@dataclasses.dataclass(frozen=True)
class ParameterConstraints:
    """Says what a plan may do with a table, and what its features are like.

    Lists have a number for each feature, in the order of the table's feature_names.

    Attributes:
      sharding_types: those allowed, e.g. ``["row_wise", "data_parallel"]``; all if
        None.
      min_partition: the least columns of a device, where columns are split.
      pooling_factors: ids of a bag; those of the config if None.
      num_poolings: bags of an example; 1 each if None.
      batch_sizes: examples on a device; those of the planner if None.
      num_keys: how many different ids the table's features may have; its capacity if
        None. With ``key_skew`` it says how often a batch repeats ids.
      key_skew: exponent of Zipf's law of their frequencies; 0: all alike.
      is_weighted: whether ids have weights, which travel where sums do.
      feature_names: features of the table, to be compared with its config's.
      output_dtype: of the returned rows; the config's if None.
      compute_kernels: ``["fused"]`` or None; there is no other kernel.
      cache_params: refused, as are the three below: the message says why.
      enforce_hbm: refused.
      device_group: refused.
      key_value_params: refused.

    Raises:
      ValueError: a value that is refused, or a sharding type that does not exist.
    """

    sharding_types: Sequence[str] | None = None
    compute_kernels: Sequence[str] | None = None
    min_partition: int | None = None
    pooling_factors: Sequence[float] | None = None
    num_poolings: Sequence[float] | None = None
    batch_sizes: Sequence[int] | None = None
    num_keys: int | None = None
    key_skew: float = 0.0
    is_weighted: bool = False
    cache_params: Any = None
    enforce_hbm: Any = None
    feature_names: Sequence[str] | None = None
    output_dtype: Any = None
    device_group: Any = None
    key_value_params: Any = None

    def __post_init__(self) -> None:
        """Brings sharding types into their one form and refuses what is not there."""
        for field, reason in _REFUSED.items():
            if getattr(self, field) is not None:
                raise ValueError(
                    f"ParameterConstraints({field}=...) is not supported: {reason}. "
                    "Leave it out."
                )
        given = self.compute_kernels or ()
        kernels = [_name(k) for k in _several("compute_kernels", given)]
        if any(k != "fused" for k in kernels):
            raise ValueError(
                f"ParameterConstraints(compute_kernels={kernels}): lookups and updates "
                "are always fused. Write ['fused'], or leave it out."
            )
        for field in ("pooling_factors", "num_poolings", "batch_sizes"):
            given = getattr(self, field)
            if given is not None:
                numbers = tuple(
                    check_number(_WHERE, f"each of {field}", x, positive=True)
                    for x in _several(field, given)
                )
                object.__setattr__(self, field, numbers)
        for field in ("num_keys", "min_partition"):
            if getattr(self, field) is not None:
                check_whole(_WHERE, field, getattr(self, field))
        check_number(_WHERE, "key_skew", self.key_skew, positive=False)
        if self.sharding_types is not None:
            types = _several("sharding_types", self.sharding_types)
            types = tuple(sharding_of(each) for each in types)
            object.__setattr__(self, "sharding_types", types)
        if self.feature_names is not None:
            names = _several("feature_names", self.feature_names)
            object.__setattr__(self, "feature_names", names)

    @property
    def allowed(self) -> tuple[str, ...]:
        """The shardings that a plan may choose."""
        if self.sharding_types is None:
            return SHARDINGS
        return tuple(s for s in SHARDINGS if s in self.sharding_types)


def _several(field: str, given: Any) -> tuple[Any, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(
            f"{_WHERE}: {field} must be a list, with a value for each feature or "
            f"choice: write [{given!r}]."
        )
    return tuple(given)


def sharding_of(given: Any) -> str:
    """Finds the sharding that a name, TorchRec's too, means; ValueError without one."""
    name = _name(given)
    if name in _ONE_AXIS_LESS:
        raise ValueError(
            f"sharding type '{name}' is not built. The same locality: "
            f"{_ONE_AXIS_LESS[name]}."
        )
    name = sharding_name(name)
    if name not in SHARDINGS:
        raise ValueError(f"sharding type '{name}' is unknown; use one of {SHARDINGS}.")
    return name


def _name(given: Any) -> str:
    return str(getattr(given, "value", given)).lower()
