# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Identities compared with an explicit tree of histories."""

from __future__ import annotations

import dataclasses
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_dynemb._src.rows import Identity, Relation

RING, SEGMENTS = 16, 8


@dataclasses.dataclass
class Node:
    """A moment of a table, with the moment that it came out of."""

    identity: Identity
    parent: Node | None = None

    def line(self) -> list[Node]:
        return [self, *([] if self.parent is None else self.parent.line())]


class Histories:
    """Makes states as a program does, each with fresh random bits."""

    def __init__(self):
        self._bits = itertools.count(1)
        self.nodes: list[Node] = []

    def init(self) -> None:
        nonces = (0,) * RING
        first = Identity(next(self._bits) << 64, next(self._bits), 0, 0, nonces)
        self.nodes.append(Node(first))

    def lookup(self, at: int) -> None:
        self._go_on(at, lambda old: self._moment(old, old.clock + 1))

    def insert(self, at: int) -> None:
        self._go_on(at, lambda old: dataclasses.replace(old, clock=old.clock + 1))

    def restore(self, at: int) -> None:
        self._go_on(at, self._restored)

    def _go_on(self, at, event) -> None:
        parent = self.nodes[at % len(self.nodes)]
        self.nodes.append(Node(event(parent.identity), parent))

    def _moment(self, old: Identity, clock: int) -> Identity:
        nonces = list(old.nonces)
        nonces[(old.moment + 1) % RING] = next(self._bits)
        return dataclasses.replace(
            old, clock=clock, moment=old.moment + 1, nonces=tuple(nonces)
        )

    def _restored(self, old: Identity) -> Identity:
        before = ((old.segment, old.clock), *old.ancestors)[:SEGMENTS]
        return dataclasses.replace(
            old,
            segment=next(self._bits),
            moment=old.moment + 1,
            nonces=(0,) * RING,
            ancestors=before,
        )


# States are taken from the newest on, so that lines become long.
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["init", "lookup", "lookup", "lookup", "insert", "restore"]),
        st.integers(-40, -1) | st.just(-1),
    ),
    max_size=60,
)


@given(EVENTS)
def test_relations_are_those_of_the_tree(events):
    made = Histories()
    made.init()
    for event, at in events:
        made.init() if event == "init" else getattr(made, event)(at)
    for later, mark in itertools.product(made.nodes, made.nodes):
        check(later, mark)


def check(later: Node, mark: Node) -> None:
    relation = later.identity.relation(mark.identity)
    line = later.line()
    if mark in line:
        same = mark.identity == later.identity
        expected = {Relation.SAME if same else Relation.CONTINUES}
        restores = len({each.identity.segment for each in line[: line.index(mark) + 1]})
        if restores > SEGMENTS + 1:
            expected = {Relation.TOO_OLD}
        assert relation in expected
    elif line[-1] is not mark.line()[-1]:
        assert relation is Relation.OTHER_RUN
    elif relation in (Relation.SAME, Relation.CONTINUES):
        assert cannot_be_told(later, mark)
    else:
        assert relation in (Relation.OTHER_HISTORY, Relation.TOO_OLD)


def cannot_be_told(later: Node, mark: Node) -> bool:
    """Whether nothing that is remembered tells two branches of a segment apart.

    Only lookups draw nonces, and a state has those of its latest ones, back to the
    latest restore.
    """
    fork = next(node for node in later.line() if node in mark.line())
    restored = later.identity.segment != fork.identity.segment
    long_ago = later.identity.moment - mark.identity.moment >= RING
    return long_ago or restored or mark.identity.moment == fork.identity.moment


def test_what_a_resume_from_an_older_checkpoint_left():
    made = Histories()
    made.init()
    for _ in range(3):
        made.lookup(-1)
    saved = made.nodes[-1]
    made.lookup(-1)
    left = made.nodes[-1]
    made.restore(-2)
    for _ in range(30):
        made.lookup(-1)
    now = made.nodes[-1].identity
    assert now.relation(left.identity) is Relation.OTHER_HISTORY
    assert now.relation(saved.identity) is Relation.CONTINUES
    assert saved.identity.relation(now) is Relation.OTHER_HISTORY


def test_json_keeps_every_bit():
    identity = Identity(
        run=2**128 - 1,
        segment=2**64 - 1,
        clock=2**63,
        moment=17,
        nonces=tuple(range(2**64 - RING, 2**64)),
        ancestors=((2**64 - 2, 5), (1, 2**40)),
    )
    assert Identity.from_json(json.loads(json.dumps(identity.to_json()))) == identity


@pytest.mark.parametrize(
    "change",
    [
        {"run": "12"},
        {"run": 12},
        {"run": "G" * 32},
        {"clock": -1},
        {"clock": 1.0},
        {"moment": True},
        {"moment": 2**64},
        {"nonces": "0" * 17},
        {"nonces": None},
        {"ancestors": [["0" * 16]]},
        {"ancestors": 3},
        {"segment": None},
    ],
)
def test_what_is_no_identity_is_refused(change):
    good = Identity(1, 2, 3, 4, (0,) * RING).to_json()
    with pytest.raises(ValueError, match="no identity"):
        Identity.from_json(good | change)
    for missing in good:
        with pytest.raises(ValueError, match="no identity"):
            Identity.from_json({k: v for k, v in good.items() if k != missing})
