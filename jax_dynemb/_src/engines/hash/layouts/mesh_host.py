# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Whole tables of a mesh: made, larger, and their numbers on the host."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec

from jax_dynemb._src import ops
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import shard
from jax_dynemb._src.engines.hash.layouts.mesh_parts import MeshParts
from jax_dynemb._src.engines.hash.layouts.stacks import Stack
from jax_dynemb._src.engines.shard import CountedArrays, grown_spec, split_spec
from jax_dynemb._src.ops import Rows, TableState, bucket_rows, is_shared
from jax_dynemb._src.spec import TableSpec

_ALL = PartitionSpec()
_EXCHANGE = ("exchange_capacity", "exchange_peak", "exchange_overflows")


class MeshHost(MeshParts):
    """Makes and reads the arrays of all devices; methods as of ``OneDevice``."""

    # ---- made --------------------------------------------------------------------

    def made(
        self, make: Callable[..., Any], used: Sequence[Stack], like: Any = None
    ) -> Callable[..., Any]:
        """Returns a function that makes arrays without homes, each shard its own."""
        del like  # the mesh says where each shard lies
        specs = {s.state_name: self.state_spec(s, homes=False) for s in used}
        return self.mapped(make, (_ALL, _ALL), specs)

    def with_homes(self, stack: Stack, state: TableState) -> TableState:
        """Adds the home records of a tiered table."""
        if self.is_inside() or not isinstance(state.index, Tracer):
            return ops.with_homes(stack.local, state)
        add = functools.partial(ops.with_homes, stack.local)
        spec = self.state_spec(stack)  # a traced array is a shard's
        bare = self.state_spec(stack, homes=False)
        return self.mapped(add, (bare,), spec)(state)

    # ---- larger ------------------------------------------------------------------
    # Every shard splits its own buckets. Where buckets do not come out even on the
    # shards, each has fewer in the larger table than it has then. Those behind them
    # move to other shards.

    def buckets(self, stack: Stack) -> int | None:
        """Counts the buckets in arrays; None: only a device knows."""
        is_part = self.is_inside()
        if self.mesh is None and not is_part:
            return None
        copies = is_part or stack.sharding == "replicated"
        within = stack.within
        own = stack.local.local_buckets if within is None else within.num_buckets
        return own * (1 if copies else self.shards)

    def shared_anew(
        self, stacks: Sequence[Stack], factors: Mapping[str, int], arrays: TableState
    ) -> TableState:
        """Shares the buckets of larger arrays evenly over the devices.

        Args:
          stacks: all that lie in the arrays, in their order there.
          factors: by stack.
          arrays: in which each shard has what its own buckets became.
        """
        moving = [s for s in stacks if _moves(s, factors[s.name])]
        if not moving:
            return arrays
        if self.is_inside():
            raise ValueError(
                f"Table '{moving[0].name}' has {moving[0].local.num_buckets} buckets "
                f"on {moving[0].width} devices. They do not come out even, so rows "
                "move to other devices when it grows: call grow outside of the "
                "shard_map."
            )
        parts = [
            (_split_buckets(s, factors[s.name]), _grown_buckets(s, factors[s.name]))
            for s in stacks
        ]
        move = functools.partial(self._evenly, parts)
        tier = arrays.tier
        if tier is not None:
            held = None if tier.held is None else move(tier.held)
            tier = dataclasses.replace(tier, location=move(tier.location), held=held)
            rows: dict[str, Any] = {}  # frames begin empty
        else:
            rows = {
                "values": move(arrays.values),
                "optimizer": {name: move(x) for name, x in arrays.optimizer.items()},
            }
        return dataclasses.replace(
            arrays,
            index=move(arrays.index),
            sketch=None if arrays.sketch is None else move(arrays.sketch),
            tier=tier,
            **rows,
        )

    def _evenly(self, parts: Sequence[tuple[int, int]], array: jax.Array) -> jax.Array:
        """Leaves out the last buckets, which are empty, and cuts the others evenly.

        Args:
          parts: buckets of each table on a shard, as they are and as they shall be.
          array: of the buckets of all shards, or of their slots.
        """
        assert self.mesh is not None
        of_bucket = array.shape[0] // (self.shards * sum(have for have, _ in parts))
        by_shard = self.gathered(array).reshape(self.shards, -1, *array.shape[1:])
        tables, begin = [], 0
        for have, keep in parts:
            end = begin + of_bucket * have
            own = by_shard[:, begin:end].reshape(-1, *array.shape[1:])
            own = own[: self.shards * of_bucket * keep]
            tables.append(own.reshape(self.shards, -1, *array.shape[1:]))
            begin = end
        kept = jnp.concatenate(tables, axis=1).reshape(-1, *array.shape[1:])
        where = NamedSharding(self.mesh, self.split)
        if self.is_explicit:
            return jax.reshard(kept, where)
        return jax.lax.with_sharding_constraint(kept, where)

    def grow_homes(
        self, stack: Stack, factor: int, before: TableState, after: TableState
    ) -> TableState:
        """Adds the homes of a tiered table to arrays that have grown."""
        spec: Any = self.state_spec(stack)
        homes = spec.tier.homes

        @functools.partial(jax.jit, static_argnums=3, donate_argnums=1)
        def move(before, new_homes, first, count):
            def body(before, new_homes, first):
                return shard.moved_rows(
                    stack.local, factor, before, new_homes, first, count
                )

            run = self.mapped(body, (spec, homes, _ALL), homes)
            return run(before, new_homes, first)

        if not _moves(stack, factor):
            return shard.with_grown_homes(stack.local, factor, before, after, move)
        location: Any = after.tier.location  # pyright: ignore[reportOptionalMemberAccess]
        slots = location.shape[0] // _grown_buckets(stack, factor)
        location = jax.ShapeDtypeStruct(
            (slots * _split_buckets(stack, factor),),
            location.dtype,
            sharding=location.sharding,
        )
        split = shard.with_grown_homes(
            stack.local, factor, before, _with_tier(after, location=location), move
        )
        return _with_tier(after, homes=_homes_shared_anew(stack, factor, split))

    # ---- on the host -------------------------------------------------------------

    def counters_of(self, stack: Stack, state: TableState) -> Rows:
        """Says where the counters of each device are."""
        step = state.counters.shape[0] // self.shards
        own = tuple(step * n + stack.local.first_row for n in range(self.shards))
        return Rows(state.counters, None if stack.sharding == "replicated" else own)

    def shards_of(
        self, stack: Stack, table: TableConfig, tree: Any
    ) -> list[tuple[TableSpec, Any]]:
        """Lists the shards of a table on this process's devices, each once.

        Args:
          stack: that holds the table.
          table: which one.
          tree: arrays of all devices.

        Raises:
          ValueError: the table is column-wise and has columns on another process.
        """
        pieces: dict[int, list[jax.Array]] = {}
        leaves, structure = jax.tree.flatten(tree)
        for leaf in leaves:
            for each in leaf.addressable_shards:
                number = (each.index[0].start or 0) // each.data.shape[0]
                if each.replica_id == 0 and number in stack.owners(table.name):
                    pieces.setdefault(number, []).append(each.data)
        if stack.sharding == "column_wise" and len(pieces) < stack.shards:
            raise ValueError(
                f"Table '{table.name}' is column-wise over several processes, and this "
                f"one has {len(pieces)} of its {stack.shards} parts: save it with "
                "jde.checkpoint, or restore that into a row-wise table to export it."
            )
        local = dataclasses.replace(stack.local, name=table.name)
        return [
            (local, jax.tree.unflatten(structure, pieces[n])) for n in sorted(pieces)
        ]

    @property
    def counts(self) -> MeshHost:
        """Counts for ``Tables.stats``."""
        return self

    def count(self, arrays: CountedArrays) -> Any:
        """See ``Counts``: counters, rows of shards and buckets, counters of tiers.

        Rows are counted in the index, so that they are right after a restore too. The
        result is int32[shards, stacks, 2]: the rows of each shard, and those of its
        fullest bucket.
        """
        specs = self.state_specs(self.stacks)
        of_indexes = {name: spec.index for name, spec in specs.items()}
        ranges = tuple((s.state_name, *s.local.bucket_range) for s in self.stacks)
        count = functools.partial(_rows_of_indexes, ranges)
        run = self.mapped(count, (of_indexes,), self.split)
        return arrays.counters, run(dict(arrays.index)), arrays.tier

    def fullest_buckets(self, counted: np.ndarray) -> dict[str, int]:
        """Finds the rows of the fullest bucket by table in what ``count`` returned."""
        by_name = self._by_arrays(counted)
        return {
            table.name: int(by_name[stack.name][stack.owners(table.name), 1].max())
            for stack in self.stacks
            for table in stack.tables
        }

    def exchange_stats(
        self, table: TableConfig, counted: np.ndarray, counters: Mapping[str, int]
    ) -> dict[str, int | float]:
        """Computes ``Tables.stats`` of a table whose rows are on single shards.

        Args:
          table: one of the tables.
          counted: what ``count`` returned of rows.
          counters: of the table, by name.
        """
        stack = self.stack_of(table.name)
        if stack.sharding != "row_wise":
            return {}
        rows = self._by_arrays(counted)[stack.name][stack.owners(table.name), 0]
        result: dict[str, int | float] = {name: counters[name] for name in _EXCHANGE}
        result["fullest_shard"] = int(rows.max()) / stack.local.local_slots
        return {f"{table.name}/{name}": value for name, value in result.items()}

    def _by_arrays(self, counted: np.ndarray) -> dict[str, np.ndarray]:
        names = [stack.name for stack in self.stacks]
        return dict(zip(names, counted.transpose(1, 0, 2), strict=True))


def _moves(stack: Stack, factor: int) -> bool:
    """Whether shards have fewer buckets than theirs become."""
    return _split_buckets(stack, factor) > _grown_buckets(stack, factor)


def _split_buckets(stack: Stack, factor: int) -> int:
    return split_spec(stack.local, factor).local_buckets


def _grown_buckets(stack: Stack, factor: int) -> int:
    return grown_spec(stack.local, factor).local_buckets


def _homes_shared_anew(stack: Stack, factor: int, split: TableState) -> jax.Array:
    """Cuts the homes of all shards evenly, through the memory of the host."""
    assert split.tier is not None
    homes = split.tier.homes
    if is_shared(homes):
        buckets = stack.local.num_buckets
        even = max(n for n in range(1, stack.width + 1) if buckets % n == 0)
        raise NotImplementedError(
            f"Table '{stack.name}' has a tier, and lies on {stack.width} devices of "
            f"several processes, where its {buckets} buckets do not come out even: it "
            f"cannot grow there. Use {even} devices, which divide them."
        )
    of_bucket = homes.shape[0] // _split_buckets(stack, factor)
    kept = np.asarray(homes)[: of_bucket * _grown_buckets(stack, factor)]
    return jax.device_put(kept, homes.sharding)


def _with_tier(state: TableState, **changes: Any) -> TableState:
    assert state.tier is not None
    return dataclasses.replace(state, tier=dataclasses.replace(state.tier, **changes))


def _rows_of_indexes(
    ranges: Sequence[tuple[str, int, int]], indexes: Mapping[str, jax.Array]
) -> jax.Array:
    """Counts rows of buckets, by the name of their arrays, the first and the end."""
    rows, counts = {name: bucket_rows(index) for name, index in indexes.items()}, []
    for name, begin, end in ranges:
        own = rows[name][begin:end]
        counts.append(jnp.stack([own.sum(), own.max()]))
    return jnp.stack(counts)[None]
