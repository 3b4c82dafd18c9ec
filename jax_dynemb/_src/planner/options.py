# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Costs of each way to place a table: bytes of memory and seconds of a step."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import AbstractMesh

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.engines.hash import Placement, Stack, bytes_of, exchange_of
from jax_dynemb._src.engines.hash.exchange import capacity_of, itemsize
from jax_dynemb._src.optim.interface import check_columns
from jax_dynemb._src.planner import work as _work
from jax_dynemb._src.planner.checks import PlannerError, PlannerErrorType
from jax_dynemb._src.planner.demand import Demand
from jax_dynemb._src.planner.rounds import (
    ONE_ROUND,
    chances_of_rounds,
    expected_distinct,
    expected_rounds,
)
from jax_dynemb._src.planner.topology import Topology
from jax_dynemb._src.shardings import (
    SHARDINGS,
    splits_columns,
    splits_rows,
    stacks_tables,
    strategy_of,
)
from jax_dynemb._src.spec import TableSpec

AXIS = "devices"
Seconds = tuple[float, float, float, float]  # forward, its exchange, backward, its
NOTHING: Seconds = (0.0, 0.0, 0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class Option:
    """One way to place a table."""

    sharding: str
    width: int  # devices that hold rows of it
    exchange: str  # what travels, "rows" or "sums"; empty if nothing does
    arrays: int  # bytes of its arrays on each of them
    batch_bytes: (
        int  # bytes of a batch on every device: ids, rows, gradients, exchanges
    )
    everywhere: Seconds  # seconds on every device, without what strategies share
    owner: Seconds  # seconds besides, on a device that holds rows
    # Bytes of ids, rows and gradients that a device hands to exchanges.
    sent: tuple[int, int, int]
    # The chance that 1, 2, ... rounds are enough for the ids that differ.
    fits: np.ndarray
    call: float  # seconds of a step of its kind, whatever its tables
    round: float  # seconds of each further round of its kind, whatever its tables
    again: Seconds  # seconds of each further round, on every device, without its call

    def mean_seconds(self, shards: int) -> float:
        """Computes the seconds of a device, if tables lie evenly."""
        everywhere, owner = self._sums
        return everywhere + owner * self.width / shards

    @functools.cached_property
    def own_rounds(self) -> float:
        """Expected rounds of a step of this table alone."""
        return expected_rounds([self.fits])

    @functools.cached_property
    def _sums(self) -> tuple[float, float]:
        further = sum(self.again) * (self.own_rounds - 1)
        return sum(self.everywhere) + further, sum(self.owner)

    def mean_bytes(self, shards: int) -> float:
        """Computes the bytes of a device, if tables lie evenly."""
        return self.arrays * self.width / shards + self.batch_bytes


class Options:
    """Computes the ways to place one table."""

    def __init__(self, demand: Demand, topology: Topology, exchange: Placement):
        """Finds what is possible; PlannerError if nothing is."""
        self.demand = demand
        self._topology = topology
        self._placement = exchange
        self._known: dict[tuple[str, int, tuple[str, ...]], Option] = {}
        # By sharding that is impossible or not allowed, why.
        self.reasons: dict[str, str] = {}
        for sharding in SHARDINGS:
            if sharding not in demand.constraints.allowed:
                self.reasons[sharding] = "not in sharding_types"
            elif reason := self._impossible(sharding):
                self.reasons[sharding] = reason
        # What is left.
        self.allowed = [s for s in demand.constraints.allowed if s not in self.reasons]
        if not self.allowed:
            reasons = "; ".join(f"{k}: {v}" for k, v in self.reasons.items())
            raise PlannerError(
                f"no sharding is left for table '{demand.name}' on "
                f"{topology.world_size} devices ({reasons}). Allow another of its "
                "sharding_types.",
                PlannerErrorType.STRICT_CONSTRAINTS,
            )

    def _impossible(self, sharding: str) -> str:
        """Says in a few words why the mesh engine would refuse a sharding."""
        shards, config = self._shards, self.demand.config
        least = self.demand.constraints.min_partition
        if splits_columns(sharding):
            if config.dim % (4 * shards):
                return f"dim does not divide by {4 * shards}"
            if least and config.dim < least * shards:
                return f"min_partition={least} needs {least * shards} columns"
            try:
                check_columns(config.name, config.optimizer)
            except ValueError:
                return "the optimizer mixes columns"
        return ""

    def of(
        self, sharding: str, width: int = 0, stacked: Sequence[Demand] = ()
    ) -> Option:
        """Returns the cost of a sharding; ``width`` owners, 0 being all devices.

        ``stacked`` are the tables that share its arrays, itself among them, if there
        are others. One exchange serves all, with room for the largest batch.
        """
        key = sharding, width or self._shards, tuple(d.name for d in stacked)
        if key not in self._known:
            self._known[key] = self._computed(*key[:2], stacked or (self.demand,))
        return self._known[key]

    def alone(self, sharding: str) -> Option:
        """Returns the cost of a sharding with no other table in the same arrays."""
        return self.of(sharding, 1 if stacks_tables(sharding) else 0)

    @property
    def unstacked(self) -> list[str]:
        """Lists the allowed shardings that are about this table alone."""
        return [s for s in self.allowed if not stacks_tables(s)]

    def _computed(self, sharding: str, width: int, stacked: Sequence[Demand]) -> Option:
        demand, topology, shards = self.demand, self._topology, self._shards
        config = demand.config
        places = shards // width
        kind = strategy_of(sharding)
        stack = Stack(tuple(d.config for d in stacked), kind, places, shards)
        batch = {feature: n for d in stacked for feature, n in d.ids.items()}
        exchange, cost = exchange_of(self._placement, stack, config, batch)
        idle = places - len(stacked) if config.name == stack.tables[0].name else 0
        sent = [n / (1 + idle) for n in cost]
        if exchange == "sums" and demand.constraints.is_weighted:
            sent[0] += shards * demand.num_ids * 4 / places
        which = exchange if splits_rows(kind) else kind
        rates = topology.known_rates[which]
        most = max(d.num_ids for d in stacked)
        factor, slots = self._placement.exchange_factor, stack.local.local_slots
        room = max(1, capacity_of(most, width, factor, slots))
        counted, again = _work.work_of(
            which, self._batch, self._row, width, shards * room, config.num_slots
        )
        ids, rows, gradients = (topology.exchange_seconds(n) for n in sent)

        def seconds(part: _work.Bytes) -> float:
            scattered = part.ids * rates.id_byte + part.rows * rates.row_byte
            return scattered + part.arrays * rates.array_byte

        forward, backward = map(seconds, counted.everywhere)
        calls = rates.table / 2
        fits, further = ONE_ROUND, NOTHING
        if which == "rows":
            fits = chances_of_rounds(self._batch, width, room)
            out, home = map(seconds, again)
            further = out + calls, ids + rows, home + calls, ids + gradients
        return Option(
            sharding,
            width,
            exchange if any(sent) else "",
            arrays_bytes(stack.local),
            self._rooms() + round(sum(sent)),
            (forward + calls, ids + rows, backward + calls, gradients),
            (seconds(counted.owner[0]), 0.0, seconds(counted.owner[1]), 0.0),
            (round(sent[0]), round(sent[1]), round(sent[2])),
            fits,
            rates.call,
            rates.again,
            further,
        )

    @property
    def _shards(self) -> int:
        return self._topology.world_size

    @functools.cached_property
    def _batch(self) -> _work.Batch:
        """Returns what a step has of the table, duplicates told apart."""
        demand, shards = self.demand, self._shards
        config, skew = demand.config, demand.constraints.key_skew
        keys = int(demand.constraints.num_keys or config.num_slots)
        one = expected_distinct(demand.num_ids, keys, skew)
        every = expected_distinct(shards * demand.num_ids, keys, skew)
        every = min(every, config.num_slots)
        return _work.Batch(demand.num_ids, demand.num_bags, one, every, shards)

    @functools.cached_property
    def _row(self) -> _work.Row:
        config = self.demand.config
        return _work.Row(
            config.dim,
            itemsize(config.param_dtype),
            itemsize(self._placement.exchange_dtype or "float32"),
            itemsize(config.dtype),
            sum(s.nbytes for s in config.states.values()),
        )

    def _rooms(self) -> int:
        """Bytes of a batch, its copy, and its rows with their gradients."""
        demand, config = self.demand, self.demand.config
        batch = demand.num_ids * 8 + demand.num_bags * 4
        if demand.constraints.is_weighted:
            batch += demand.num_ids * 4
        returned = demand.num_bags * config.dim * itemsize(config.dtype)
        return 2 * batch + 2 * returned


def exchange_placement(
    world_size: int, factor: float, dtype: str | None, pooled: str
) -> Placement:
    """Returns a mesh of so many devices that need not exist."""
    mesh = AbstractMesh((world_size,), (AXIS,))
    return Placement(mesh, (AXIS,), factor, dtype, pooled)


def arrays_bytes(local: TableSpec) -> int:
    """Computes the bytes of all arrays of a table on one device."""
    counters = local.counter_rows * len(_ffi.constants()["counters"]) * 8
    leaves = jax.eval_shape(lambda: local.optimizer.extra(local.dim))
    once = sum(math.prod(x.shape) * x.dtype.itemsize for x in leaves)
    return bytes_of(local) + counters + once
