# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of a running program as streams of rows."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from flax import nnx

from jax_dynemb._src.admission import Frequency
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.shard import counter_values
from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.nnx.interface import TableModule, is_graph_node
from jax_dynemb._src.rows import Schema, StoredTable
from jax_dynemb._src.table import (
    Tables,
    check_not_donated,
    identity_in,
    log_head,
    sketch_of,
)


def live_table(coll: Tables, state: States, name: str) -> StoredTable:
    """Returns a table of this program; ValueError if other processes have parts."""
    check_whole(coll, state, name)
    config: Any = coll.tables[name]
    if not isinstance(config, TableConfig):
        return _tensor_train(coll, state, config)
    counters = counter_values(coll.hash_engine.with_own_counters(state, name))
    schema = Schema.of(config, counters["step"])
    return StoredTable(
        schema=dataclasses.replace(schema, hash_seed=config.hash_seed),
        rows=counters["rows"],
        counters=counters,
        chunks=lambda: coll.export(state, name),
        index=lambda: coll.engine.index(state, name),
        head=log_head(coll, state, name),
        identity=identity_in(coll, state, name),
        **_counts(coll, state, config),
    )


def _counts(coll: Tables, state: States, config: TableConfig) -> dict[str, Any]:
    """Returns readers of the counts of ids without a row."""
    if not isinstance(config.admission, Frequency):
        return {}
    if config.admission.counts_keys:
        return {
            "admission_counts": functools.partial(
                coll.admission_counts, state, config.name
            )
        }
    arrays = state[coll.state_name(config.name)]
    return {"sketch": functools.partial(sketch_of, coll, config.name, arrays)}


def _tensor_train(coll: Tables, state: States, config: Any) -> StoredTable:
    """The rows that the cores stand for, by id: they have neither counts nor states."""
    name = config.name
    fields = {"num_embeddings": config.num_embeddings, "pooling": config.pooling}
    return StoredTable(
        schema=Schema(name, config.dim, config=fields),
        rows=config.num_embeddings,
        counters={},
        chunks=lambda: coll.export(state, name),
        index=lambda: coll.engine.index(state, name),
    )


def collection_of(call: str, coll: Any, state: Any) -> tuple[Tables, States]:
    """Returns the tables of an export and their state, of a module those inside.

    Raises:
      RuntimeError: the state was donated.
      TypeError: arguments of another kind, or in another order.
      ValueError: the module has several collections.
    """
    if is_graph_node(coll):
        coll, state = _in_module(call, coll, state)
    if not isinstance(coll, Tables) or state is None:
        got = kind_of(coll) + (" alone" if state is None else "")
        raise TypeError(
            f"{call} takes the jde.Tables before their state, or a module with tables, "
            f"but got {got}: {call}(..., coll, state) or {call}(..., model.sparse)."
        )
    check_not_donated(state, call)
    return coll, state


def _in_module(call: str, module: Any, state: Any) -> tuple[Any, Any]:
    if state is not None:
        raise TypeError(
            f"{call}: a module has its own state, so leave the state out: "
            f"{call}(..., model.sparse)."
        )
    found = {
        ".".join(map(str, path)): each
        for path, each in nnx.iter_graph(module)
        if isinstance(each, TableModule)
    }
    if len(found) != 1:
        where = f"collections at {sorted(found)}" if found else "no tables"
        raise ValueError(
            f"{call}: the module has {where}. Give one collection at a time: "
            f"{call}(..., model.{next(iter(found), 'sparse')})."
        )
    ((_, one),) = found.items()
    return one.coll, one.get_state()


def check_whole(coll: Tables, state: States, name: str) -> None:
    """Raises unless this process sees the whole table, or a train's whole residual."""
    config: Any = coll.tables[name]
    if not isinstance(config, TableConfig):
        if config.residual is None:
            return
        name = config.residual.name
    if not state[coll.state_name(name)].values.is_fully_addressable:
        raise ValueError(
            f"Table '{name}' lies on the devices of several processes, and this one "
            "sees its own rows only. Save a checkpoint with jde.checkpoint.save, and "
            "let one process write the files: python -m jax_dynemb convert CHECKPOINT "
            "OUT --to safetensors (or dynamicemb), or restore it there and export."
        )
