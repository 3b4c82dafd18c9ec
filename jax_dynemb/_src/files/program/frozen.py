# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables with keys and rows only, for serving; those of a mesh moved to one device."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ops
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import States
from jax_dynemb._src.engines.hash import Stack, own_block
from jax_dynemb._src.engines.shard import Rule, Shards, joined_counters
from jax_dynemb._src.files.live import collection_of
from jax_dynemb._src.ops import (
    FeatureInput,
    TableState,
    keys_of_index,
    one_row_each,
    only_rows,
    pack_rows,
    refuse_packed,
)
from jax_dynemb._src.optim.interface import sgd
from jax_dynemb._src.row_formats import row_format_of
from jax_dynemb._src.shardings import splits_columns
from jax_dynemb._src.spec import TableSpec
from jax_dynemb._src.table import Tables, without_rows
from jax_dynemb._src.tt import TTState

Device = Any  # a jax.Device; type checkers can not see that class


def frozen(
    coll: Any,
    state: States | None = None,
    *,
    device: Device | None = None,
    on_mesh: bool = False,
    dtype: Any = None,
    where: Mapping[str, Rule] | None = None,
) -> tuple[Tables, States]:
    """Returns the same tables with keys and rows only, to be read with ``Tables.find``.

    Tables of one device keep their arrays: those of the state, not copies. Tables of a
    mesh are put together on one device, whatever their sharding. There they take the
    memory of their keys and rows once, and while they are moved the part of one device
    as well. The arrays on the mesh stay as they are, and so do optimizer states. A
    replicated table is one device's copy, which is not copied if it lies there.

    A frozen table has no tier: all rows that the table holds are read into the memory
    of its devices. Rows in a store below it stay there.

    With a ``dtype`` the rows are packed: each has a float32 scale, and each column a
    code of 8 or 4 bits. ``find`` multiplies while it copies or pools, in float32. Only
    ``find`` reads such tables, so keep ``coll`` and ``state`` to train on.

    Args:
      coll: the tables; or a module with one collection, such as ``model.sparse``.
      state: their state; None of a module, which has it.
      device: where tables of a mesh shall be; its first device if None.
      on_mesh: True leaves tables of a mesh where they are, for programs that run on
        the same mesh.
      dtype: of packed rows: ``"float8_e4m3fn"``, ``"int8"`` or ``"int4"``; None: rows
        stay as they are. The scale of a row is its largest magnitude over 448, 127 or
        7. A row of a column-wise table that stays on the mesh has a scale on each
        device. The cores of tensor trains stay float32.
      where: by table, a rule; rows that ``erase_where`` would remove by it are left
        out. The tables keep them, and their indexes are copied.

    Returns:
      Tables whose optimizers keep no states, and their state: by table name for
      tables that were moved, else under the names of ``state``.

    Raises:
      RuntimeError: the state was donated to an earlier call.
      TypeError: ``coll`` is neither ``Tables`` nor a module.
      ValueError: ``device`` is given, but nothing is to be moved. Another process
        holds rows of the tables. Rows are not packed in ``dtype``, or they are packed
        already.
    """
    coll, live = collection_of("frozen", coll, state)
    refuse_packed(coll.engine.catalog.dynamic.values(), "frozen")
    packed = None if dtype is None else row_format_of(dtype)
    if where:
        live = without_rows(coll, live, dict(where))
    live = coll.hash_engine.out_of_tiers(live)
    tables = [_table_served(table) for table in coll.tables.values()]
    served = coll.with_tables(tables)
    states = {name: _state_served(arrays) for name, arrays in live.items()}
    if coll.placement is not None and not on_mesh:
        return _on_one_device(served, states, device, packed)
    if device is not None:
        raise ValueError(
            f"device={device} is where tables of a mesh are put together, but these "
            "stay where they are: leave device out, or move them with jax.device_put."
        )
    if packed is None:
        return served, states
    states = {name: _packed(arrays, packed) for name, arrays in states.items()}
    return coll.with_tables(_with_format(tables, packed)), states


def _table_served(table: Any) -> Any:
    if not isinstance(table, TableConfig):
        return dataclasses.replace(table, optimizer=None)
    return dataclasses.replace(
        table,
        optimizer=sgd(0.0),
        state_dtype=(),
        rounding="nearest",
        admission=None,
        log_removed=0,
        keep_for=None,
        tier=None,
        # Above a store a table has fewer rows than its capacity says.
        capacity=table.capacity if table.tier is None else table.num_slots,
    )


def _state_served(arrays: Any) -> Any:
    if isinstance(arrays, TTState):
        return dataclasses.replace(arrays, optimizer=())
    return only_rows(arrays)


def _with_format(tables: Iterable[Any], packed: str) -> list[Any]:
    return [
        dataclasses.replace(table, row_format=packed)
        if isinstance(table, TableConfig)
        else table
        for table in tables
    ]


def _packed(state: Any, row_format: str) -> Any:
    """Packs the rows where they lie, each device its own; cores stay as they are."""
    if isinstance(state, TTState):
        return state
    values = jax.jit(
        functools.partial(pack_rows, row_format=row_format),
        out_shardings=state.values.sharding,
    )(state.values)
    return dataclasses.replace(state, values=values)


def _on_one_device(
    coll: Tables, state: States, device: Device | None, packed: str | None
) -> tuple[Tables, States]:
    """Tables of a mesh without optimizer states, on one of its devices or another."""
    assert coll.placement is not None  # see frozen
    placement = coll.placement.here()
    if device is None:
        assert isinstance(placement.mesh, jax.sharding.Mesh)  # outside of shard_map
        device = placement.mesh.devices.flat[0]
    states = {}
    for name, table in coll.tables.items():
        if not isinstance(table, TableConfig):
            states[name] = jax.tree.map(
                lambda array: jax.device_put(array.addressable_data(0), device),
                state[name],
            )
            continue
        stack = placement.stack_of(name)
        shards = coll.hash_engine.shards(state, name)
        _check_all_here(table, stack, len(shards))
        if splits_columns(stack.sharding):
            joined = _columns_joined(shards, device)
            states[name] = joined if packed is None else _packed(joined, packed)
        else:
            shards = [(spec, own_block(spec, part)) for spec, part in shards]
            if packed is not None:  # before they are moved: fewer bytes
                shards = [(spec, _packed(part, packed)) for spec, part in shards]
            states[name] = _rows_joined(shards, device)
        states[name] = dataclasses.replace(states[name], name=name)
    tables = list(coll.tables.values())
    if packed is not None:
        tables = _with_format(tables, packed)
    return Tables(tables, share_arrays=False), states


def _check_all_here(table: TableConfig, stack: Stack, found: int) -> None:
    needed = {"replicated": 1, "row_wise": stack.width}.get(stack.sharding, found)
    if found < needed:
        raise ValueError(
            f"Table '{table.name}' lies on several processes, and this one has "
            f"{found} of its {needed} parts. Save it with jde.checkpoint and restore "
            "it in one process, or keep it on the mesh with on_mesh=True."
        )


def _rows_joined(shards: Shards, device: Device) -> TableState:
    """Blocks of buckets one after the other: the array that one device would have."""
    states, spec = [state for _, state in shards], shards[0][0]
    counters = np.concatenate([np.asarray(s.counters) for s in states])
    if len(counters) != spec.max_shards:
        counters = joined_counters(counters, spec.max_shards)
    return TableState(
        index=_stacked([s.index for s in states], spec.num_buckets, device),
        values=_stacked([s.values for s in states], spec.num_slots, device),
        optimizer={},
        counters=jax.device_put(counters, device),
    )


def _stacked(parts: Sequence[jax.Array], rows: int, device: Device) -> jax.Array:
    """Puts arrays one after the other, up to ``rows``; copies one of them at a time."""
    if len(parts) == 1:
        return jax.device_put(parts[0], device)
    shape = (rows, *parts[0].shape[1:])
    whole, begin = jnp.zeros(shape, parts[0].dtype, device=device), 0
    for part in parts:
        if begin + part.shape[0] > rows:
            part = part[: max(0, rows - begin)]
        if part.shape[0] == 0:
            break
        whole = _written(whole, jax.device_put(part, device), begin)
        begin += part.shape[0]
        whole.block_until_ready()  # else all parts would be on their way together
    return whole


@functools.partial(jax.jit, donate_argnums=0)
def _written(whole: jax.Array, part: jax.Array, begin: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(whole, part, begin, axis=0)


def _columns_joined(shards: Shards, device: Device) -> TableState:
    """Joins whole rows in the slots of the first part.

    Each part has all keys, maybe in other slots: the first part's keys find its rows.
    """
    narrow, first = shards[0]
    # Rows are copied as they are stored, not as they are looked up.
    narrow = dataclasses.replace(narrow, dtype=narrow.param_dtype)
    index = jax.device_put(first.index, device)
    shape = (narrow.local_slots, narrow.dim * len(shards))
    values = jnp.zeros(shape, first.values.dtype, device=device)
    for number, (_, state) in enumerate(shards):
        part = jax.device_put(state, device)
        for block in range(narrow.max_shards):
            values = _columns_written(narrow, values, index, part, number, block)
        values.block_until_ready()
    return TableState(index, values, {}, jax.device_put(first.counters, device))


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _columns_written(
    narrow: TableSpec,
    values: jax.Array,
    index: jax.Array,
    part: TableState,
    number: jax.Array,
    block: jax.Array,
) -> jax.Array:
    """Writes a part's columns for one of the equal blocks that bound temporaries."""
    buckets = narrow.num_buckets // narrow.max_shards
    some = jax.lax.dynamic_slice_in_dim(index, block * buckets, buckets)
    # An empty slot has the key -1, which reads zeros.
    keys = jnp.stack(keys_of_index(some), axis=-1).reshape(-1, 2)
    layout = one_row_each(narrow.name, narrow.name, keys.shape[0])
    inputs = [(layout, FeatureInput(keys, None, None))]
    (output,), _ = ops.find([narrow], {narrow.state_name: part}, inputs)
    at = (block * keys.shape[0], number * narrow.dim)
    return jax.lax.dynamic_update_slice(values, output["rows"], at)
