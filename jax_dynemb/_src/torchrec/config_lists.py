# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Lists of configs: the tables that a collection makes of them, and hands out again."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jax.sharding import Mesh

from jax_dynemb._src import tt
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.row_formats import dtype_name
from jax_dynemb._src.torchrec.configs import NAMES_OF_DTYPES, Config, PoolingType, Table

_log = logging.getLogger("jax_dynemb.torchrec")
_told: set[str] = set()  # tables that have been named


def as_tables(tables: Iterable[Table]) -> tuple[TableConfig | tt.TTConfig, ...]:
    """The configs of the core.

    Raises:
      TypeError: not a list of configs.
    """
    if isinstance(tables, (Config, TableConfig, tt.TTConfig, Mapping)):
        raise TypeError("tables must be a list of configs: write tables=[config].")
    made = []
    for table in tables:
        if not isinstance(table, (Config, TableConfig, tt.TTConfig)):
            raise TypeError(
                f"tables hold {type(table).__name__}: write EmbeddingBagConfig(...), "
                "EmbeddingConfig(...), jde.TableConfig(...) or jde.TTConfig(...) for "
                "each."
            )
        made.append(table.to_table() if isinstance(table, Config) else table)
    return tuple(made)


def shown_configs(
    kind: type[Any], given: Iterable[Table], made: Sequence[Any]
) -> tuple[Any, ...]:
    """Returns configs with TorchRec's fields, as its collections hand them out.

    Args:
      kind: class of those that stand for a config of the core.
      given: as the collection got them.
      made: the same tables, as the core knows them.
    """
    return tuple(
        dataclasses.replace(config, feature_names=list(table.feature_names))
        if isinstance(config, Config)
        else _shown(kind, table)
        for config, table in zip(given, made, strict=True)
    )


def _shown(kind: type[Any], table: Any) -> Any:
    is_train = isinstance(table, tt.TTConfig)
    more: dict[str, Any] = {}
    if table.pooling:
        more["pooling"] = PoolingType(table.pooling.upper())
    if not is_train:
        more["data_type"] = NAMES_OF_DTYPES[dtype_name(table.param_dtype)]
    return kind(
        num_embeddings=table.num_embeddings if is_train else table.capacity,
        embedding_dim=table.dim,
        name=table.name,
        feature_names=list(table.feature_names),
        init_fn=table.initializer,
        optimizer=table.optimizer,
        tt_ranks=table.ranks if is_train else None,
        **more,
    )


def tables_of(
    tables: Iterable[Table],
    mesh: Mesh | None,
    axis: str | tuple[str, ...] | None,
    plan: Any,
) -> tuple[TableConfig | tt.TTConfig, ...]:
    """Returns the configs of the core, so that their rows can lie on the mesh.

    A bucket lies on one device. So a table of few rows gets more buckets, where it
    comes from a config of TorchRec's and no plan says where it lies.

    Raises:
      TypeError: not a list of configs.
    """
    tables = list(tables) if isinstance(tables, Iterator) else tables
    made = as_tables(tables)
    _tell_unnamed(tables)
    if mesh is None or plan is not None:
        return made
    axes = (
        mesh.axis_names if axis is None else (axis,) if isinstance(axis, str) else axis
    )
    shards = math.prod(mesh.shape.get(a, 1) for a in axes)
    return tuple(
        _with_buckets(table, shards) if isinstance(given, Config) else table
        for given, table in zip(tables, made, strict=True)
    )


def _tell_unnamed(tables: Iterable[Table]) -> None:
    """Logs once which tables have no optimizer: torch's would have updated them too."""
    configs = [table for table in tables if isinstance(table, Config)]
    unnamed = [
        config.name
        for config in configs
        if config.optimizer is None and "optimizer" not in (config.table_fields or {})
    ]
    if new := [name for name in unnamed if name not in _told]:
        _told.update(new)
        _log.warning(
            "Tables %s have no optimizer, so jde.optim.sgd(0.01) updates their rows; "
            "an optimizer of optax updates dense parameters only. Write tables = "
            "with_optimizer(tables, {'*': jde.optim.adam(0.001)}).",
            new,
        )


def _with_buckets(table: Any, shards: int) -> Any:
    """Raises the capacity of a row-wise table until all shards have equal parts."""
    if not isinstance(table, TableConfig) or table.sharding != "row_wise":
        return table
    if table.max_shards % shards == 0 or shards & (shards - 1):
        return table  # on others the last shards have fewer buckets, or none
    buckets = -(-table.num_buckets // shards) * shards
    rows = buckets * (table.num_slots // table.num_buckets)
    return dataclasses.replace(table, capacity=rows)


def with_optimizer(tables: Iterable[Any], optimizers: Mapping[str, Any]) -> list[Any]:
    """Returns the tables with their optimizers; the arguments stay as they are.

    It stands for ``apply_optimizer_in_backward``: call it before the collection is
    made.

    Args:
      tables: configs of TorchRec's or ``jde.TableConfig``.
      optimizers: ``jde.optim`` or row-local optax transformations, by table name;
        ``"*"`` is for all others.

    Raises:
      TypeError: the optimizers are not given by table.
      ValueError: a name is of no table.
    """
    if not isinstance(optimizers, Mapping):
        raise TypeError(
            "with_optimizer takes a dict of optimizers by table name; for all tables "
            'write {"*": jde.optim.adam(0.1)}.'
        )
    tables = list(tables)
    names = {table.name for table in tables}
    if unknown := sorted(set(optimizers) - names - {"*"}):
        raise ValueError(
            f"with_optimizer: no table {unknown}: tables are {sorted(names)}, and '*' "
            "stands for all others."
        )
    chosen = [optimizers.get(table.name, optimizers.get("*")) for table in tables]
    return [
        table if optimizer is None else dataclasses.replace(table, optimizer=optimizer)
        for table, optimizer in zip(tables, chosen, strict=True)
    ]
