# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Places a choice of shardings on devices, and adds up their bytes and seconds."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from jax_dynemb._src.engines.hash import by_shape, cut_into_blocks
from jax_dynemb._src.planner.options import Option, Options, Seconds
from jax_dynemb._src.planner.rounds import expected_rounds
from jax_dynemb._src.planner.topology import Topology
from jax_dynemb._src.shardings import (
    TABLE_WISE,
    splits_rows,
    stacks_tables,
    strategy_of,
)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where all tables are."""

    options: dict[str, Option]  # by table
    shards: dict[str, tuple[int, ...]]  # by table, the devices that hold rows of it
    # [devices, 4], of (forward, its exchange, backward, its exchange).
    seconds: np.ndarray
    arrays: int  # bytes of tables on each device, the same on all
    batch_bytes: int  # bytes of a batch on each device
    at_once: float = 1.0  # part of the devices that compute at the same time

    @property
    def bytes(self) -> int:
        """Bytes of a device."""
        return self.arrays + self.batch_bytes

    @property
    def slowest(self) -> float:
        """Seconds of a step: what a plan minimises."""
        return step_seconds(self.seconds.sum(axis=1), self.at_once)


def step_seconds(loads: np.ndarray, at_once: float) -> float:
    """Computes the time of the slowest device of loads in seconds.

    Rates are measured while all devices work. Where they share cores, a device that
    works alone is faster by ``at_once``, the part that computes at the same time.
    """
    return float(max(loads.max() * at_once, loads.mean()))


class Groups:
    """Tables by shape: those of one shape may share arrays as table-wise ones."""

    def __init__(self, options: Mapping[str, Options]):
        """Compares the shapes of the tables that may be table-wise."""
        able = [o.demand.config for o in options.values() if TABLE_WISE in o.allowed]
        self._configs = {t.name: t for t in able}
        self._cut: dict[tuple[tuple[str, ...], int], list[tuple[list[str], int]]] = {}
        groups = [[t.name for t in some] for some in by_shape(able)]

        def seconds(name: str) -> float:
            return -sum(options[name].of(TABLE_WISE, 1).owner)

        # Of the tables of each group, those first that cost their owner most.
        self.names = [sorted(some, key=lambda n: (seconds(n), n)) for some in groups]
        self._place = {
            name: (number, place)
            for number, some in enumerate(self.names)
            for place, name in enumerate(some)
        }

    def among(self, names: Iterable[str]) -> Iterator[list[str]]:
        """Groups some of the tables; the order is that of all of them."""
        ordered = sorted(names, key=self._place.__getitem__)
        for _, some in itertools.groupby(ordered, lambda name: self._place[name][0]):
            yield list(some)

    def cut(self, names: Sequence[str], shards: int) -> list[tuple[list[str], int]]:
        """Cuts tables of one shape into stacks, each with its number of places."""
        key = tuple(names), shards
        if key not in self._cut:  # layouts of a search differ by few tables
            cut = cut_into_blocks([self._configs[name] for name in names], shards)
            self._cut[key] = [([t.name for t in some], n) for some, n in cut]
        return self._cut[key]


def lay_out(
    choice: Mapping[str, str],
    options: Mapping[str, Options],
    groups: Groups,
    topology: Topology,
) -> Layout:
    """Places the tables of a choice; table-wise ones go where least is to be done."""
    shards = topology.world_size
    everyone = tuple(range(shards))
    chosen: dict[str, Option] = {}
    where: dict[str, tuple[int, ...]] = {}
    loads, arrays = np.zeros((shards, 4)), 0
    common: list[Seconds] = []  # of every device
    for name, sharding in choice.items():
        if not stacks_tables(sharding):
            option = options[name].of(sharding)
            chosen[name], where[name] = option, everyone
            common += option.everywhere, option.owner
            arrays += option.arrays
    for names in groups.among({n for n in choice if stacks_tables(choice[n])}):
        for some, places in groups.cut(names, shards):
            width = shards // places
            by_place = loads.reshape(places, width, 4)
            least = np.argsort(by_place.sum(axis=(1, 2))[: len(some)], kind="stable")
            mine = _stacked([options[name] for name in some], width)
            for name, option, place in zip(some, mine, least.tolist(), strict=True):
                chosen[name] = option
                where[name] = everyone[place * width : (place + 1) * width]
            common += (option.everywhere for option in mine)
            by_place[least] += np.array([option.owner for option in mine])[:, None]
            arrays += max(option.arrays for option in mine)
    loads += np.sum(common, axis=0) + _shared(chosen.values())
    batch_bytes = sum(option.batch_bytes for option in chosen.values())
    return Layout(chosen, where, loads, arrays, batch_bytes, topology.part_at_once)


def _stacked(tables: Sequence[Options], width: int) -> list[Option]:
    """Returns the costs of tables that share arrays, and so an exchange."""
    alone = [each.of(TABLE_WISE, width) for each in tables]
    pairs = zip(tables, alone, strict=True)
    if len({(t.demand.num_ids, option.exchange) for t, option in pairs}) == 1:
        return alone  # the exchange of each is as large
    demands = [each.demand for each in tables]
    return [each.of(TABLE_WISE, width, demands) for each in tables]


def _shared(options: Iterable[Option]) -> np.ndarray:
    """Seconds that all tables of a strategy spend together, and on further rounds."""
    chosen = list(options)
    rounds = expected_rounds(o.fits for o in chosen)
    calls: dict[str, float] = {}
    for option in chosen:
        name = strategy_of(option.sharding)
        further = rounds - 1 if splits_rows(name) else 0
        mine = option.call + option.round * further
        calls[name] = max(calls.get(name, 0.0), mine)
    total = sum(calls.values()) / 2
    again = np.array([option.again for option in chosen]) * (rounds - 1)
    return again.sum(axis=0) + np.array([total, 0.0, total, 0.0])
