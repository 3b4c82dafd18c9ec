# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Random calls on states of many histories: each is taken, counted or refused.

A tree of moments, which knows nothing of the library's numbers, says what is right.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.table import identity_in
from jax_dynemb._src.tiers.mover import Moments
from jax_dynemb.stores import Memory

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
CALLS = int(os.environ.get("IDENTITY_CALLS", 100_000 if NIGHTLY else 400))
RING, SEGMENTS, KEPT, LARGEST = 16, 8, 24, 1024
SMALL = jde.TableConfig(
    "t",
    dim=1,
    capacity=256,
    optimizer=jde.optim.sgd(1.0),
    initializer=jde.initializers.zeros(),
)
COLL = jde.Tables([SMALL])
IDS = jde.ids(np.arange(8))
KNOWN = {"t": np.arange(8)}
REFUSED = (
    "of another run|of a history|earlier moment|older than the 8 latest|out of order"
)


@functools.partial(jax.jit, static_argnums=0)
def look(coll, state):
    _, residual, state = coll.lookup(state, {"t": IDS})
    return residual, state


@functools.partial(jax.jit, static_argnums=0)
def apply(coll, state, residual):
    return coll.apply_gradients(state, residual, {"t": jnp.ones((8, 1))})


@functools.partial(jax.jit, static_argnums=0)
def rows(coll, state):
    return coll.find(state, {"t": IDS})[0]["t"]


@dataclasses.dataclass(eq=False)
class Node:
    """A state, and how it came to be.

    Attributes:
      moment: training lookups and restores since ``init``.
      segment: restores since ``init``.
      coll: the tables that the state is of: larger ones after a growth.
    """

    state: Any
    parent: Node | None = None
    moment: int = 0
    segment: int = 0
    residual: Any = None
    coll: jde.Tables = COLL

    def line(self) -> list[Node]:
        found: list[Node] = [self]
        node = self.parent
        while node is not None:
            found.append(node)
            node = node.parent
        return found


def expected(now: Node, mark: Node) -> bool | None:
    """Says whether a state goes on with what a node noted; None: nothing can say."""
    line = now.line()
    if mark in line:
        between = now.segment - mark.segment
        return None if between == SEGMENTS + 1 else between <= SEGMENTS
    marks = set(mark.line())
    fork = next((node for node in line if node in marks), None)
    if fork is None:
        return False
    restored = now.segment != fork.segment
    long_ago = now.moment - mark.moment >= RING
    if restored or long_ago or mark.moment == fork.moment:
        return None
    return False


def takes(now: Node, looked: Node) -> bool:
    """Whether an update by a residual trains rows."""
    recent = now.moment - looked.moment < RING
    return recent and now.segment == looked.segment and looked in now.line()


class Departed:
    """Stands for what a prefetcher reads of the state that it gets."""

    def __init__(self, node):
        self.identity = lambda name: identity_in(node.coll, node.state, name)


class Machine:
    """Holds some states of histories, marks, deltas, replicas and prefetchers."""

    def __init__(self, seed: int, folder):
        self.rng = np.random.default_rng(seed)
        self.folder, self.saves = folder, 0
        self.counts = collections.Counter()
        self.nodes, self.looked = [Node(COLL.init(0))], []
        self.saved: list[tuple[Any, Node]] = []
        self.marks: list[tuple[jde.Mark, Node]] = []
        self.deltas: list[jde.Delta] = []
        self.replica, self.at = COLL.init(0), None
        self.prefetcher: tuple[Moments, Node] | None = None

    def one_of(self, found: list) -> Any:
        """Draws the latest more often: lines become long."""
        back = int(self.rng.geometric(0.3))
        return found[-min(back, len(found))]

    def add(self, node: Node) -> None:
        found = [*self.nodes, node]
        self.nodes = found[-KEPT:]
        for each in found[:-KEPT]:
            each.state = None  # its place in the tree stays

    def init(self) -> None:
        self.add(Node(COLL.init(int(self.rng.integers(9)))))

    def lookup(self) -> None:
        old = self.one_of(self.nodes)
        residual, state = look(old.coll, old.state)
        new = Node(state, old, old.moment + 1, old.segment, residual, old.coll)
        self.looked = [*self.looked, new][-KEPT:]
        self.add(new)

    def grow(self) -> None:
        """Makes a larger table, whose history goes on; lookups of before may fit it."""
        old = self.one_of(self.nodes)
        capacity = 2 * old.coll.tables["t"].capacity
        if capacity > LARGEST:
            return
        coll, state = old.coll.grow(old.state, {"t": capacity})
        self.add(Node(state, old, old.moment, old.segment, coll=coll))
        self.counts["grown"] += 1

    def save(self) -> None:
        node, self.saves = self.one_of(self.nodes), self.saves + 1
        path = self.folder / str(self.saves)
        jde.checkpoint.save(path, 1, node.state, tables=node.coll, wait=True)
        self.saved = [*self.saved, (path, node)][-4:]

    def restore(self) -> None:
        if self.saved:
            path, old = self.one_of(self.saved)
            coll = old.coll
            state = jde.checkpoint.restore(path, coll.init(1), tables=coll).tree
            self.add(Node(state, old, old.moment + 1, old.segment + 1, coll=coll))

    def update(self) -> None:
        """Takes any residual in any state: trains its rows, or counts them."""
        if not self.looked:
            return
        now, looked = self.one_of(self.nodes), self.one_of(self.looked)
        lost = now.coll.stats(now.state)["t/lost_updates"]
        new = apply(now.coll, now.state, looked.residual)
        more = now.coll.stats(new)["t/lost_updates"] - lost
        changed = not np.array_equal(new["t"].values, now.state["t"].values)
        if takes(now, looked) and now.coll != looked.coll:
            # Rows that a growth has moved are found by their keys, or counted.
            steps = rows(now.coll, now.state) - rows(now.coll, new)
            assert more + np.count_nonzero(np.asarray(steps) == 1) == 8
            assert more + np.count_nonzero(steps) == 8
        else:
            assert (more == 0, changed) == (takes(now, looked),) * 2
        self.counts["taken" if changed else "counted"] += 1
        now.state = new

    def export(self) -> None:
        """A whole delta, or one since any mark."""
        now, whole = self.one_of(self.nodes), self.rng.random() < 0.3
        if whole or not self.marks:
            deltas, marks = now.coll.export_delta(now.state)
        else:
            mark, noted = self.one_of(self.marks)
            since, right = {"t": mark}, expected(now, noted)
            try:
                deltas, marks = now.coll.export_delta(
                    now.state, since, known_keys=KNOWN
                )
            except ValueError as error:
                self.refused(error, right)
                return
            self.was_taken(right)
        self.marks = [*self.marks, (marks["t"], now)][-KEPT:]
        # What an iteration yields is compared elsewhere.
        delta = dataclasses.replace(deltas["t"], chunks=())
        self.deltas = [*self.deltas, delta][-KEPT:]

    def follow(self) -> None:
        """Any delta, on the replica as it is; a new one begins with a whole export."""
        if not self.deltas:
            return
        delta = self.one_of(self.deltas)
        if delta.since is None and self.rng.random() < 0.5:
            self.replica, self.at = COLL.init(0), None
        right = delta.since == self.at
        try:
            self.replica = COLL.apply_delta(self.replica, "t", delta, at=self.at)
        except ValueError as error:
            assert not right, error
            self.counts["refused"] += 1
            return
        self.was_taken(right)
        self.at = delta.until

    def go_on(self) -> None:
        """A prefetcher gets any state; after an error another prefetcher begins."""
        now = self.one_of(self.nodes)
        if self.prefetcher is None:
            moments = Moments({"t": Memory(SMALL)})
            moments.go_on(Departed(now))
            self.prefetcher = moments, now
            return
        moments, latest = self.prefetcher
        right = expected(now, latest)
        try:
            moments.go_on(Departed(now))
        except ValueError as error:
            self.refused(error, right)
            self.prefetcher = None
            return
        self.was_taken(right)
        self.prefetcher = moments, now

    def refused(self, error: ValueError, right: bool | None) -> None:
        assert right is not True, error
        assert any(text in str(error) for text in REFUSED.split("|")), error
        self.counts["refused"] += 1

    def was_taken(self, right: bool | None) -> None:
        assert right is not False
        self.counts["taken"] += 1


WEIGHTS = {
    "init": 2,
    "lookup": 40,
    "grow": 2,
    "save": 0.5,
    "restore": 1,
    "update": 20,
    "export": 15,
    "follow": 6,
    "go_on": 15,
}


@pytest.mark.parametrize("seed", range(2))
def test_each_call_is_taken_counted_or_refused(seed, tmp_path):
    machine, weights = Machine(seed, tmp_path), np.array(list(WEIGHTS.values()))
    # Among few calls there would be no restore.
    for name in ("lookup", "save", "lookup", "grow", "update", "restore", "lookup"):
        getattr(machine, name)()
    calls = machine.rng.choice(list(WEIGHTS), CALLS // 2, p=weights / weights.sum())
    for name in calls:
        getattr(machine, name)()
    assert min(machine.counts[k] for k in ("taken", "counted", "refused")) > CALLS / 40
