# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A mesh with its axes, and how a function runs once on each of its devices."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
)

from jax_dynemb._src.engines.hash.layouts.hosts import Hosts, hosts_of
from jax_dynemb._src.engines.hash.layouts.layout import ByName
from jax_dynemb._src.engines.hash.layouts.peers import Peers, peers_of
from jax_dynemb._src.engines.hash.layouts.programs import program
from jax_dynemb._src.engines.hash.layouts.stacks import Stack
from jax_dynemb._src.engines.hash.links import Links
from jax_dynemb._src.ops import Ring, TableState, TierState
from jax_dynemb._src.spec import TableSpec


@dataclasses.dataclass(frozen=True)
class MeshAxes(ByName):
    """Holds the mesh of a collection and the options of its exchanges.

    Attributes:
      mesh: the devices; None: those of the shard_map that the code will run in.
      axes: axes of the mesh that rows and batches are split over; tables are
        replicated over the others.
      exchange_factor: places for ids in an exchange, as a multiple of an equal share
        of the batch.
      exchange_dtype: of rows and gradients on the wire; None: as exact as the rows.
      exchange_pooled: what travels for pooled features, "rows", "sums" or "auto".
      share_arrays: whether row-wise tables of one width lie in the same arrays, as of
        ``OneDevice``.
      exchange_transport: "peers": GPUs read each other's memory; "collectives": XLA's
        do the exchange; "auto": peers where they can.
      stacks: the arrays of all tables.
      devices_per_host: neighbours on the axes, which exchange among themselves first;
        1: none do; None: GPUs of a host do, where there are several hosts.
    """

    mesh: Mesh | AbstractMesh | None
    axes: tuple[str, ...]
    exchange_factor: float
    exchange_dtype: str | None
    exchange_pooled: str = "auto"
    share_arrays: bool | None = None
    exchange_transport: str = "auto"
    stacks: tuple[Stack, ...] = dataclasses.field(default=(), hash=False)
    devices_per_host: int | None = None

    @property
    def shards(self) -> int:
        """Counts the parts that row-wise tables are cut into."""
        if self.mesh is None:
            return 1  # not known yet; names and specs do not depend on it
        return math.prod(self.mesh.shape[axis] for axis in self.axes)

    @property
    def peers(self) -> Peers:
        """Says which devices read each other's memory, where one exchange suffices."""
        if self.has_hosts:
            return Peers((), f"the devices belong to {self.hosts.count} hosts")
        return peers_of(self.mesh, self.axes, self.exchange_transport)

    @property
    def hosts(self) -> Hosts:
        """Says which devices belong to one host."""
        return hosts_of(
            self.mesh, self.axes, self.exchange_transport, self.devices_per_host
        )

    @property
    def has_hosts(self) -> bool:
        """Whether devices of a host exchange before they do so with others."""
        return self.hosts.count > 1

    @property
    def host_links(self) -> Links:
        """Describes the links between the shards of a host."""
        hosts = self.hosts
        return Links(self.axes, hosts.devices, hosts.peers.ids, hosts.count)

    @property
    def links_between_hosts(self) -> Links:
        """Describes the links between devices of the same place in each host."""
        count, devices, _ = self.hosts
        return Links(self.axes, count, groups=devices, apart=True)

    @property
    def links(self) -> Links:
        """Describes the links between the shards."""
        return Links(self.axes, self.shards, self.peers.ids)

    @property
    def devices(self) -> int:
        """Counts the devices of the mesh, replicas included."""
        return 1 if self.mesh is None else self.mesh.size

    @property
    def split(self) -> PartitionSpec:
        """Splits the first axis over all shards."""
        return PartitionSpec(self.axes)

    def state_spec(self, stack: Stack, *, homes: bool = True) -> TableState:
        """Returns a PartitionSpec for each array of a stack, with homes or without."""
        table = stack.local
        rows = PartitionSpec() if stack.sharding == "replicated" else self.split
        leaves = jax.eval_shape(lambda: table.optimizer.extra(table.dim))
        return TableState(
            index=rows,  # pyright: ignore[reportArgumentType]
            values=rows,  # pyright: ignore[reportArgumentType]
            optimizer=dict.fromkeys(table.states, rows),  # pyright: ignore[reportArgumentType]
            counters=rows,  # pyright: ignore[reportArgumentType]
            extra=tuple(PartitionSpec() for _ in leaves),
            sketch=rows if table.sketch_words else None,  # pyright: ignore[reportArgumentType]
            removed=rows if table.ring_size else None,  # pyright: ignore[reportArgumentType]
            tier=_tier_spec(table, rows, homes),
            name=stack.state_name,
        )

    def state_specs(self, stacks: Sequence[Stack]) -> dict[str, TableState]:
        """Returns the specs of some arrays of the state."""
        return {s.state_name: self.state_spec(s) for s in stacks}

    def slot_specs(self, stacks: Sequence[Stack]) -> dict[str, PartitionSpec]:
        """Returns the specs of one number, or one row, for each slot in a list."""
        return {
            s.name: PartitionSpec() if s.sharding == "replicated" else self.split
            for s in stacks
        }

    def is_inside(self) -> bool:
        """Whether the running code is inside a shard_map over these axes."""
        manual = set(jax.sharding.get_abstract_mesh().manual_axes)
        inside = manual & set(self.axes)
        if inside and inside != set(self.axes):
            raise ValueError(
                f"The tables are split over the mesh axes {self.axes}, but this "
                f"shard_map is over {sorted(manual)} only: give it all of them, or "
                "call the tables outside of it."
            )
        return bool(inside)

    def my_block(self, stack: Stack) -> jax.Array:
        """Returns the block that this shard holds; inside shard_map."""
        return jax.lax.axis_index(self.axes) // stack.width

    def mapped(
        self,
        function: Callable[..., Any],
        in_specs: Any,
        out_specs: Any,
        *,
        at_once: bool = True,
    ) -> Callable[..., Any]:
        """Returns the function run once a shard; itself where it already runs there.

        Outside of jit, equal calls share one compiled program: see ``program``. So the
        function must not capture arrays.

        Args:
          function: what a device runs on its part of the arguments.
          in_specs: of the arguments.
          out_specs: of the results.
          at_once: always so here; see ``OneDevice``.
        """
        del at_once
        if self.is_inside():
            return function
        assert self.mesh is not None  # see here()
        run = program(function, self.mesh, in_specs, out_specs)
        if not self.is_explicit:
            return run

        def resharded(*args):
            # An explicit axis is not moved without being asked to.
            return run(*self.put(args, in_specs))

        return resharded

    @property
    def spans_processes(self) -> bool:
        """Whether processes of a job may have parts of one state."""
        if isinstance(self.mesh, jax.sharding.Mesh):
            return bool(self.mesh.is_multi_process)
        return jax.process_count() > 1  # a shard_map's mesh does not say it

    @property
    def is_explicit(self) -> bool:
        """Whether arrays have their sharding as part of their type."""
        return self.mesh is not None and AxisType.Explicit in self.mesh.axis_types

    def gathered(self, array: jax.Array) -> jax.Array:
        """Returns the array, ready to be cut or padded where shards do not end.

        An explicit axis must divide what it splits, so there the array is copied to
        all devices first. Elsewhere XLA moves what has to move.
        """
        if not self.is_explicit or self.is_inside():
            return array
        assert self.mesh is not None
        return jax.reshard(array, NamedSharding(self.mesh, PartitionSpec()))

    def put(self, tree: Any, specs: Any) -> Any:
        """Moves arrays to their shardings; only explicit axes need it."""
        mesh = self.mesh
        assert mesh is not None

        def one(spec, part):
            sharding = NamedSharding(mesh, spec)
            return jax.tree.map(lambda x: jax.reshard(jnp.asarray(x), sharding), part)

        return jax.tree.map(
            one, specs, tree, is_leaf=lambda x: isinstance(x, PartitionSpec)
        )


def _tier_spec(table: TableSpec, rows: Any, homes: bool) -> TierState | None:
    if table.tier is None:
        return None
    below = table.ring_rows > 0
    return TierState(
        location=rows,
        owners=rows,
        homes=rows if homes else None,  # pyright: ignore[reportArgumentType]
        counters=rows,
        held=rows if below else None,
        departed=Ring(rows, rows) if below else None,
    )
