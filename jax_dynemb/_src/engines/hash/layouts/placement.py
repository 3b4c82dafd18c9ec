# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Places tables on a mesh: checks them, and says which shards hold which of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines.hash.layouts.batch import MeshBatch
from jax_dynemb._src.engines.hash.layouts.blocks import in_shared_arrays
from jax_dynemb._src.engines.hash.layouts.hosts import Hosts
from jax_dynemb._src.engines.hash.layouts.mesh_host import MeshHost
from jax_dynemb._src.engines.hash.layouts.peers import TRANSPORTS, Peers
from jax_dynemb._src.engines.hash.layouts.stacks import make_stacks, same_stacks
from jax_dynemb._src.engines.score_inputs import ScoreInputs
from jax_dynemb._src.optim.interface import check_columns
from jax_dynemb._src.shardings import splits_columns, stacks_tables

_POOLED = ("auto", "rows", "sums")
# Room that stays empty travels in a collective, and does not between peers.
FACTOR_OF_COLLECTIVES, FACTOR_OF_PEERS = 0.5, 1.0
# Distinct ids of a power law grow with this power of the ids, so the gateways of a host
# have fewer of them than its devices (docs/decisions/exchange.md).
_GROWTH_OF_DISTINCT = 0.84
_WIRE_DTYPES = (None, "float32", "bfloat16", "float16")


class Placement(MeshHost):
    """Holds the tables of a mesh; see ``MeshAxes`` for its attributes."""

    def with_tables(
        self,
        tables: Sequence[TableConfig],
        planned: Mapping[str, Sequence[int]] | None = None,
    ) -> Placement:
        """Places these tables; those of equal names stay where they were.

        Args:
          tables: the tables of a collection.
          planned: by table-wise table, the shards that a plan gives it.
        """
        check_tables(self.shards, tables)
        if self.mesh is None:
            _check_not_table_wise(tables)
        stacks = same_stacks(self.stacks, tables)
        if stacks is None:
            stacks = make_stacks(tables, self.shards, planned)
        stacks = in_shared_arrays(stacks, self.stacks, self.share_arrays)
        new = dataclasses.replace(self, stacks=stacks)
        if self.mesh is not None:
            new._check_slots()
        return new

    def here(self) -> Placement:
        """Takes the mesh of the shard_map that the code runs in, if there was none."""
        if self.mesh is not None:
            return self
        if not self.is_inside():
            raise ValueError(
                f"Tables with axis_name={self.axes} know their devices inside a "
                "jax.shard_map over these axes only. For what runs outside of it, "
                "make jde.Tables(tables, mesh=..., axis=...): the state is the same."
            )
        mesh = jax.sharding.get_abstract_mesh()
        shards = dataclasses.replace(self, mesh=mesh).shards
        # Tables stay in the arrays whose names the state has.
        before = [dataclasses.replace(s, shards=shards) for s in self.stacks]
        there = dataclasses.replace(self, mesh=mesh, stacks=tuple(before))
        return there.with_tables([t for stack in before for t in stack.tables])

    def batch(
        self,
        configs: Mapping[str, Any],
        ids: Mapping[str, Any],
        weights: Mapping[str, Any],
        score_inputs: ScoreInputs | None = None,
    ) -> MeshBatch:
        """Splits the ids and weights of a call; ``configs`` is by feature."""
        return MeshBatch(self, configs, ids, weights, score_inputs)


def make_placement(
    mesh: Mesh | None,
    axis: str | tuple[str, ...] | None,
    exchange_factor: float | None,
    exchange_dtype: Any,
    exchange_pooled: str,
    share_arrays: bool | None = None,
    exchange_transport: str = "auto",
    devices_per_host: int | None = None,
) -> Placement:
    """Checks what was given to ``Tables``; without a mesh ``axis`` is ``axis_name``."""
    axes = mesh.axis_names if mesh is not None and axis is None else axis or ()
    axes = (axes,) if isinstance(axes, str) else tuple(axes)
    if mesh is None and not axes:
        raise ValueError(f"axis_name={axis!r}: name the axes of your jax.shard_map")
    if mesh is not None and (set(axes) - set(mesh.axis_names) or not axes):
        raise ValueError(
            f"axis={axis!r}: the mesh has the axes {mesh.axis_names}; name one of "
            "them, or a tuple of some, or leave axis out for all."
        )
    if exchange_factor is not None and not exchange_factor > 0:
        raise ValueError(f"exchange_factor must be above 0, not {exchange_factor!r}")
    dtype = None if exchange_dtype is None else jnp.dtype(exchange_dtype).name
    if dtype not in _WIRE_DTYPES:
        raise ValueError(
            f"exchange_dtype must be one of {_WIRE_DTYPES}, not {exchange_dtype!r}"
        )
    if exchange_pooled not in _POOLED:
        raise ValueError(
            f"exchange_pooled must be one of {_POOLED}, not {exchange_pooled!r}"
        )
    if exchange_transport not in TRANSPORTS:
        raise ValueError(
            f"exchange_transport must be one of {TRANSPORTS}, not "
            f"{exchange_transport!r}"
        )
    if devices_per_host is not None and not _is_count(devices_per_host):
        raise ValueError(
            f"devices_per_host must be a number from 1 on, not {devices_per_host!r}"
        )
    placement = Placement(
        mesh,
        axes,
        float(exchange_factor or 1),
        dtype,
        exchange_pooled,
        share_arrays,
        exchange_transport,
        devices_per_host=devices_per_host,
    )
    peers = placement.peers  # processes agree on them here, as a traced step cannot
    if exchange_factor is None:
        factor = _usual_factor(peers, placement.hosts)
        placement = dataclasses.replace(placement, exchange_factor=factor)
    return placement


def _usual_factor(peers: Peers, hosts: Hosts) -> float:
    """Returns room for the ids of a power law that is as steep as users' are."""
    if peers.ids:
        return FACTOR_OF_PEERS
    return FACTOR_OF_COLLECTIVES * hosts.devices ** (_GROWTH_OF_DISTINCT - 1)


def _is_count(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number > 0


def check_tables(shards: int, tables: Sequence[TableConfig]) -> None:
    """Refuses a table that the devices cannot share."""
    for table in tables:
        if table.optimizer.decays_lookups:
            raise ValueError(
                f"Table '{table.name}' has catch_up_forward=True, which one device "
                "has but no mesh. Leave it out: a row then decays in its next update, "
                "and a lookup before that reads it as it is stored."
            )
        if splits_columns(table.sharding):
            _check_columns(table, shards)


def _check_not_table_wise(tables: Sequence[TableConfig]) -> None:
    for table in tables:
        if stacks_tables(table.sharding):
            raise ValueError(
                f"Table '{table.name}' is table-wise: where it lies depends on the "
                "number of devices. Give jde.Tables mesh=... and axis=... instead of "
                "axis_name=...; inside a shard_map they work too."
            )


def _check_columns(table: TableConfig, shards: int) -> None:
    if table.dim % (4 * shards):
        raise ValueError(
            f"Table '{table.name}' has {table.dim} columns, which {shards} devices "
            f"cannot share column-wise in parts of a multiple of 4. Use a dim that is "
            f"a multiple of {4 * shards}, or sharding='row_wise'."
        )
    check_columns(table.name, table.optimizer)
