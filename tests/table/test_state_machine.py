# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Any sequence of operations, against the oracle.

The tables are small and the keys crowd into two buckets, so rows leave all the
time. Sizes are few, so programs are compiled once.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import jax_dynemb as jde
from growth import grow
from strategies import crowd, crowded_batch
from support import Twins, assert_stats, came_back, gradients, to_device

# Gradients pile up over many steps of float32 here and of float64 there.
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}
SEEDS = st.integers(0, 2**16)
SIZES = (1, 8, 64, 300)


def tables(strategy: str) -> list[jde.TableConfig]:
    return [
        jde.TableConfig(
            name="first",
            dim=4,
            capacity=256,
            feature_names=("a", "b"),
            optimizer=jde.optim.adagrad(0.125, initial_accumulator_value=1.0),
            score_strategy=strategy,
        ),
        jde.TableConfig(
            name="second",
            dim=3,
            capacity=256,
            optimizer=jde.optim.sgd(0.25),
            score_strategy=strategy,
            pooling="mean",
            param_dtype="float32",
            hash_seed=2**64 - 12345,
        ),
    ]


class TableMachine(RuleBasedStateMachine):
    """Lookups, updates, inserts and erasures in any order."""

    strategy: str

    def __init__(self):
        super().__init__()
        self.twins = Twins(*tables(self.strategy), seed=3)
        self.pending: tuple[Any, Any, dict[str, tuple]] | None = None
        self.lookups = 0

    @initialize(seed=SEEDS)
    def fill(self, seed):
        self.lookup(300, seed, 3)

    @rule(size=st.sampled_from(SIZES), seed=SEEDS, score=st.integers(0, 7))
    def lookup(self, size, seed, score, **flags):
        a, b, *pairs = (crowded_batch(seed + i, size) for i in range(4))
        ids = {"a": a, "b": b, "second": np.stack(pairs, axis=1)}
        scores = None
        if self.strategy == "customized":
            scores = dict.fromkeys(("first", "second"), jnp.uint32(score))
        weights = {"second": gradients((size, 2), seed)}
        rows, residuals = self.twins.lookup(ids, weights, scores, **flags)
        self.pending = (*residuals, {f: x.shape for f, x in rows.items()})
        self.lookups += 1

    @rule(seed=SEEDS, flags=st.sampled_from([{"touch": False}, {"insert": False}]))
    def lookup_with_flags(self, seed, flags):
        self.lookup(64, seed, 3, **flags)

    @rule(size=st.sampled_from(SIZES), seed=SEEDS, score=st.integers(0, 7))
    def train(self, size, seed, score):
        self.lookup(size, seed, score)
        self.apply(seed)

    @precondition(lambda self: self.pending is not None)
    @rule(seed=SEEDS)
    def apply(self, seed):
        residual, expected, shapes = self.pending
        self.pending = None
        if not came_back(self.twins.oracle, expected):
            d_rows = {f: gradients(shape, seed) for f, shape in shapes.items()}
            self.twins.apply((residual, expected), d_rows)

    @rule(size=st.sampled_from(SIZES), seed=SEEDS, order=st.permutations(range(3)))
    def accumulate(self, size, seed, order):
        """One update of several lookups, of which the later ones evict rows."""
        lookups = []
        for n in range(len(order)):
            self.lookup(size, seed + 7 * n, 3)
            lookups.append(self.pending)
        self.pending = None
        if any(came_back(self.twins.oracle, expected) for _, expected, _ in lookups):
            return
        residuals, expected, shapes = zip(*(lookups[n] for n in order), strict=True)
        d_rows = [
            {f: gradients(shape, seed + n) for f, shape in one.items()}
            for n, one in enumerate(shapes)
        ]
        self.twins.apply((list(residuals), list(expected)), d_rows)

    @rule(seed=SEEDS)
    def find(self, seed):
        ids = crowded_batch(seed, 64)
        self.twins.find({"b": ids, "second": ids.reshape(32, 2)})

    @rule(seed=SEEDS)
    def insert(self, seed):
        ids = crowded_batch(seed, 64)
        rows = {"first": gradients((64, 4), seed), "second": gradients((64, 3), seed)}
        scores = None
        if self.strategy != "timestamp":  # the oracle's clock is not the host's
            words = np.random.default_rng(seed).integers(1, 2**62, 64)
            scores = dict.fromkeys(rows, words.astype(np.uint64))
        self.twins.insert(dict.fromkeys(rows, ids), rows, scores=scores)

    @rule(seed=SEEDS)
    def erase(self, seed):
        first, second = (crowded_batch(seed + i, 64) for i in range(2))
        self.twins.erase({"first": first, "second": second})

    @rule(seed=SEEDS, pins=st.booleans())
    def pin(self, seed, pins):
        twins, ids = self.twins, {"first": crowded_batch(seed, 64)}
        change = twins.coll.pin if pins else twins.coll.unpin
        twins.state = change(twins.state, {"first": to_device(ids["first"])})
        twins.oracle.pin(ids, pins)

    @precondition(lambda self: self.lookups > 8)
    @rule()
    def clear(self):
        """Late, when the buckets are full; clocks go on."""
        self.twins.state = self.twins.coll.clear(self.twins.state)
        self.twins.oracle.clear()
        self.lookups = 0

    @rule()
    def erase_all(self):
        everything = np.array(crowd(), np.int64)
        self.twins.erase({"first": everything})

    @rule(
        bound=st.integers(0, 6),
        least=st.sampled_from([0, 20, 150]),
        norm=st.sampled_from([0.0, 0.3, 1e9]),
    )
    def remove_by_rule(self, bound, least, norm):
        first = {"keep_at_least": least, "norm_below": norm, "combine": "any"}
        if self.strategy == "lfu":
            first["count_below"] = bound
        elif self.strategy != "timestamp":  # the oracle's clock is not the host's
            first["unused_for"] = bound
        trim = {"keep_at_most": least + 40 * bound}
        self.twins.erase_where({"first": first, "second": trim})

    @precondition(lambda self: self.lookups > 8 and not self.grown)
    @rule()
    def grow(self):
        """Late, when the buckets are full, and once: programs are compiled anew."""
        self.pending = None  # its slots are those of the smaller tables
        grow(self.twins, first=512, second=1024)

    @property
    def grown(self) -> bool:
        return self.twins.coll.tables["first"].capacity > 256

    @rule()
    def export(self):
        self.twins.check(TOLERANCE)

    @invariant()
    def counters_agree(self):
        stats = self.twins.coll.stats(self.twins.state)
        assert_stats(stats, self.twins.oracle.stats())
        for name in self.twins.coll.tables:
            names = ("rows", "evicted", "erased", "removed_by_rule")
            left_or_there = sum(stats[f"{name}/{each}"] for each in names)
            assert stats[f"{name}/inserted"] == left_or_there

    def teardown(self):
        self.twins.check(TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [str(s.value) for s in jde.ScoreStrategy])
def test_any_sequence_of_operations(platform, strategy):
    machine = type(TableMachine.__name__, (TableMachine,), {"strategy": strategy})
    run_state_machine_as_test(machine)
