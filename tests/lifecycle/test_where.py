# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Exports and frozen tables without the rows that a rule selects."""

import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb.lifecycle import Rule
from meshes import mesh_of
from oracle import keys_to_remove
from support import Twins

TABLES = [
    jde.TableConfig("lfu", dim=4, capacity=1024, score_strategy="lfu", log_removed=64),
    jde.TableConfig("step", dim=4, capacity=1024),
]
FIELDS = {
    "lfu": {"count_below": 3, "keep_at_least": 20},
    "step": {"unused_for": 1, "norm_below": 0.08, "combine": "any"},
}


def trained(**placement) -> Twins:
    twins = Twins(*TABLES, **placement)
    for seed in range(4):
        ids = np.random.default_rng(seed).zipf(1.2, 120) % 300
        twins.train({"lfu": ids, "step": ids}, seed=seed)
    return twins


def kept(twins: Twins, name: str) -> set[int]:
    """Lists the keys that the oracle keeps."""
    table = twins.oracle.tables[name]
    return {key for key, _ in table.items()} - keys_to_remove(table, **FIELDS[name])


@pytest.mark.parametrize("placement", [{}, {"mesh": mesh_of(8)}], ids=["one", "mesh"])
def test_what_a_rule_selects_is_left_out(placement):
    twins = trained(**placement)
    coll, state = twins.coll, twins.state
    rules = {name: Rule(**fields) for name, fields in FIELDS.items()}
    served, rows = jde.export.frozen(coll, state, where=rules)
    for name, rule in rules.items():
        wanted = kept(twins, name)
        assert 0 < len(wanted) < len(twins.oracle.tables[name])
        chunks = list(coll.export(state, name, where=rule))
        assert {k for chunk in chunks for k in chunk.keys.tolist()} == wanted
        ids = {name: jde.ids(np.arange(300))}
        _, found, _ = served.find(rows, ids)
        assert set(np.flatnonzero(found[name]).tolist()) == wanted
    twins.check()  # the tables keep all rows, and their counters
    # A replica that is cut likewise learns which of its keys are left out.
    known = np.arange(300)
    first, *_ = coll.export(state, "lfu", known_keys=known, where=rules["lfu"])
    assert set(first.removed.tolist()) == set(range(300)) - kept(twins, "lfu")


def test_a_policy_for_inference():
    policy = {"eviction_threshold": 1, "decay_rate": 0.9}
    policy |= {"inference_eviction_threshold": 3}
    rule = Rule.from_policy(policy, inference=True)
    twins = trained()
    keys = [c.keys for c in twins.coll.export(twins.state, "lfu", where=rule)]
    counts = {k: row.score >> 32 for k, row in twins.oracle.tables["lfu"].items()}
    assert set(np.concatenate(keys).tolist()) == {k for k, n in counts.items() if n > 2}


def test_a_rule_that_does_not_fit_is_refused():
    twins = trained()
    with pytest.raises(ValueError, match="count_below"):
        list(twins.coll.export(twins.state, "step", where=Rule(count_below=2)))
