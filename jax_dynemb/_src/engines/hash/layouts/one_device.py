# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables on one device: whole arrays, which a function takes as they are.

Its methods are those of ``Placement``. Specs of arguments and results say nothing here,
so they are None.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jax_dynemb._src import ops
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import shard
from jax_dynemb._src.engines.hash.layouts import blocks as _blocks
from jax_dynemb._src.engines.hash.layouts.batch import Inputs, with_own_uses
from jax_dynemb._src.engines.hash.layouts.layout import ByName
from jax_dynemb._src.engines.hash.layouts.programs import program
from jax_dynemb._src.engines.hash.layouts.stacks import Stack
from jax_dynemb._src.engines.score_inputs import ScoreInputs
from jax_dynemb._src.engines.shard import ALONE, ShardGroup
from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.ops import FeatureLayout, Rows, TableState, jagged_bags, prepare
from jax_dynemb._src.spec import TableSpec


@dataclasses.dataclass(frozen=True)
class OneDevice(ByName):
    """Holds the tables of one device.

    Attributes:
      share_arrays: whether tables of one width lie in the same arrays; None: up to
        4 GiB of them.
      stacks: one for each table; those that share arrays are neighbours.
    """

    share_arrays: bool | None = None
    stacks: tuple[Stack, ...] = dataclasses.field(default=(), hash=False)

    mesh = split = None
    axes = ()
    shards = devices = 1
    spans_processes = sends = False

    def here(self) -> OneDevice:
        """Returns the layout of the running code."""
        return self

    def is_inside(self) -> bool:
        """Whether the running code is inside a shard_map over its axes: it has none."""
        return False

    def with_tables(
        self, tables: Sequence[TableConfig], planned: Any = None
    ) -> OneDevice:
        """Gives tables their arrays; those of equal names stay together.

        Args:
          tables: the tables of a collection.
          planned: nothing.

        Raises:
          ValueError: a table has more slots than int32 can number.
        """
        del planned
        alone = tuple(Stack((table,), "local", 1, 1) for table in tables)
        dataclasses.replace(self, stacks=alone)._check_slots()
        stacks = _blocks.in_shared_arrays(alone, self.stacks, self.share_arrays)
        return dataclasses.replace(self, stacks=stacks)

    # ---- how a function runs -----------------------------------------------------

    def mapped(
        self,
        function: Callable[..., Any],
        in_specs: Any = None,
        out_specs: Any = None,
        *,
        at_once: bool = False,
    ) -> Callable[..., Any]:
        """Returns the function itself.

        Args:
          function: takes arrays.
          in_specs: nothing.
          out_specs: nothing.
          at_once: it runs as one program outside of jit, too. XLA rounds an optax
            transformation otherwise where its operations run one by one, and compiles
            a loop over rounds again for each call.
        """
        del in_specs, out_specs
        return program(function, None, (), ()) if at_once else function

    def batch(
        self,
        configs: Mapping[str, Any],
        ids: Mapping[str, Any],
        weights: Mapping[str, Any],
        score_inputs: ScoreInputs | None = None,
    ) -> WholeBatch:
        """Takes the ids and weights of a call; ``configs`` is by feature."""
        return WholeBatch(configs, ids, weights, score_inputs)

    def split_behind(self, stacked: int) -> None:
        """Returns the spec of an array that is split behind axes of ``lax.scan``."""
        del stacked

    def total(self, number: jax.Array) -> jax.Array:
        """Sums over the devices."""
        return number

    def padded(self, layout: FeatureLayout, stacked: int, gradient: Any) -> Any:
        """Returns a gradient with the rows that were looked up."""
        del layout, stacked
        return gradient

    def whole(self, offsets: jax.Array | None, per_id: jax.Array) -> jax.Array:
        """Returns one number an id, as it leaves a shard_map."""
        del offsets
        return per_id

    def per_id_spec(self, offsets: jax.Array | None) -> None:
        """Returns the spec of what ``whole`` returns."""
        del offsets

    def cut(self, per_id: jax.Array, rows: int) -> jax.Array:
        """Drops what was padded."""
        del rows
        return per_id

    def state_spec(self, stack: Stack, *, homes: bool = True) -> Any:
        """Returns the spec of some arrays."""
        del stack, homes

    def state_specs(self, stacks: Sequence[Stack]) -> Any:
        """Returns the specs of some arrays of the state."""
        del stacks

    def slot_specs(self, stacks: Sequence[Stack]) -> Any:
        """Returns the specs of numbers of slots, by stack."""
        return {stack.name: None for stack in stacks}

    # ---- what one device has of a table ------------------------------------------

    def my_ids(self, stack: Stack, table: TableConfig, ids: jax.Array) -> jax.Array:
        """Returns the ids whose rows this device has: all."""
        del stack, table
        return ids

    def my_columns(
        self, stack: Stack, written: Mapping[str, jax.Array]
    ) -> Mapping[str, jax.Array]:
        """Returns what this device has of rows."""
        del stack
        return written

    def same_clock(self, stack: Stack, table: str, state: TableState) -> TableState:
        """Returns the state with the latest clock of all devices of a table."""
        del stack, table
        return state

    def group(self, stack: Stack, table: str) -> ShardGroup:
        """Says how a device learns of others, for rules."""
        del stack, table
        return ALONE

    def copied(
        self, tables: Sequence[TableSpec], state: Mapping[str, TableState], inputs: Any
    ) -> Inputs:
        """Copies the ids of tiered tables on a GPU, see ``ops.copied_batch``."""
        return ops.copied_batch(tables, state, inputs)

    # ---- whole tables ------------------------------------------------------------

    def made(
        self,
        make: Callable[..., Any],
        used: Sequence[Stack],
        like: Mapping[str, TableState] | None = None,
    ) -> Callable[..., Any]:
        """Returns a function that makes arrays without homes, as one program.

        Args:
          make: the function.
          used: what it makes.
          like: arrays that its results are sharded as, by name.
        """
        del used
        if like is None:
            return program(make, None, (), ())
        bare = {name: shard.without_homes(state) for name, state in like.items()}
        places = jax.tree.map(lambda leaf: leaf.sharding, bare)
        return jax.jit(make, out_shardings=places)

    def with_first_column(self, stack: Stack, state: TableState) -> TableState:
        """Returns a new state, which has all columns."""
        del stack
        return state

    def with_homes(self, stack: Stack, state: TableState) -> TableState:
        """Adds the home records of a tiered table."""
        return ops.with_homes(stack.local, state)

    def buckets(self, stack: Stack) -> int:
        """Counts the buckets of arrays."""
        within = stack.within
        return stack.local.local_buckets if within is None else within.num_buckets

    def shared_anew(
        self, stacks: Sequence[Stack], factors: Mapping[str, int], arrays: TableState
    ) -> TableState:
        """Shares the buckets of larger arrays evenly over the devices."""
        del stacks, factors
        return arrays

    def grow_homes(
        self, stack: Stack, factor: int, before: TableState, after: TableState
    ) -> TableState:
        """See ``Rows.grow_homes``; of a tiered table."""
        move = functools.partial(shard.moved_on_one_device, stack.local, factor)
        return shard.with_grown_homes(stack.local, factor, before, after, move)

    # ---- on the host -------------------------------------------------------------

    def counters_of(self, stack: Stack, state: TableState) -> Rows:
        """Says where the counters of each device are."""
        return Rows(state.counters, (stack.local.first_row,))

    def shards_of(
        self, stack: Stack, table: TableConfig, tree: Any
    ) -> list[tuple[TableSpec, Any]]:
        """Lists the arrays of this process's devices, each with its spec."""
        del table
        return [(stack.local, tree)]

    @functools.cached_property
    def counts(self) -> _blocks.Counts:
        """Counts for ``Tables.stats``."""
        return _blocks.Counts.of(self.stacks)

    def fullest_buckets(self, counted: np.ndarray) -> dict[str, int]:
        """Names what ``counts`` has counted: rows of the fullest bucket by table."""
        return _blocks.by_table(self.stacks, counted)

    def exchange_stats(
        self, table: TableConfig, counted: Any, counters: Mapping[str, int]
    ) -> dict[str, int | float]:
        """Computes what ``Tables.stats`` says about exchanges: nothing."""
        del table, counted, counters
        return {}


class WholeBatch:
    """Holds the ids and weights of a call on one device; see ``MeshBatch``."""

    ids_specs = weights_specs = per_id_specs = score_specs = None

    def __init__(
        self,
        configs: Mapping[str, Any],
        ids: Mapping[str, Any],
        weights: Mapping[str, Any],
        score_inputs: ScoreInputs | None = None,
    ):
        self.configs = {name: configs[name] for name in ids}
        self.ids, self.weights = ids, weights
        self.score_inputs = score_inputs or ScoreInputs({})
        self.layout = self

    @property
    def names(self) -> Collection[str]:
        """Names the tables that are looked up."""
        return {config.name for config in self.configs.values()}

    def local(
        self,
        ids: Mapping[str, Any],
        weights: Mapping[str, Any],
        own: ScoreInputs | None = None,
    ) -> Inputs:
        """Prepares the features."""
        jagged = {name: x for name, x in ids.items() if isinstance(x, Jagged)}
        bags = jagged_bags(self.configs, jagged) if jagged else {}
        inputs = [
            prepare(config, name, ids[name], weights.get(name), bags.get(name))
            for name, config in self.configs.items()
        ]
        if own is None or not own.is_per_id:
            return inputs
        return [
            (
                layout,
                with_own_uses(self.configs[layout.feature], layout, feature_input, own),
            )
            for layout, feature_input in inputs
        ]

    def whole(self, offsets: jax.Array | None, per_id: jax.Array) -> jax.Array:
        """Returns one number an id, as it leaves the function."""
        del offsets
        return per_id

    def restored(self, name: str, per_id: jax.Array) -> jax.Array:
        """Returns one number an id, in the shape of the ids."""
        del name
        return per_id

    def in_order(self, values: Mapping[str, Any]) -> OrderedDict[str, Any]:
        """Returns what is passed by feature, in the order of the features."""
        return OrderedDict((name, values[name]) for name in self.configs)

    rows = in_order
