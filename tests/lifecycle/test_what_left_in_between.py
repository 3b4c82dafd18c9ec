# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the log of removed keys: tiers, meshes, shared arrays, growth, checkpoints."""

import json
from typing import Any

import numpy as np
import pytest

import jax_dynemb as jde
from growth import grow
from keys import keys_of_bucket
from meshes import mesh_of
from support import Twins, assert_same_rows, export, gradients

SLOTS = 1 << 14  # growth keeps the log of tables that are so large
# Two buckets of each of eight devices hold 2,048 rows.
CROWD = np.array(
    [key for bucket in range(0, 128, 8) for key in keys_of_bucket(bucket, 128, 160)],
    np.int64,
)
TIER = jde.tiers.host(hbm_fraction=4 / 128, spill_rows=512)
PLACES: dict[str, dict[str, Any]] = {
    "one device": {},
    "shared arrays": {"share_arrays": True},
    "mesh": {"mesh": 8},
    "tier": {"tier": TIER},
    "tier on a mesh": {"mesh": 4, "tier": TIER},
}


def table(name: str, **fields: Any) -> jde.TableConfig:
    optimizer = jde.optim.adagrad(0.125, initial_accumulator_value=1.0)
    return jde.TableConfig(name, 4, SLOTS, optimizer=optimizer, **fields)


def train(twins: Twins, seed: int) -> None:
    """Evicts, erases and removes by rule."""
    rng = np.random.default_rng(seed)
    ids = {name: rng.choice(CROWD, 2000) for name in twins.coll.tables}
    rows, residuals = twins.lookup(ids)
    twins.apply(residuals, {f: gradients(x.shape, seed) for f, x in rows.items()})
    twins.erase({"logged": ids["logged"][:12]})
    if seed % 2:
        twins.erase_where({"logged": {"unused_for": 1, "keep_at_least": 1000}})


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_replica_follows_the_log(place, tmp_path):
    where = dict(PLACES[place])
    fields = {"tier": where.pop("tier", None)}
    if "mesh" in where:
        where["mesh"] = mesh_of(where["mesh"])
    plain = [table(name, **fields) for name in "ab"] if "share_arrays" in where else []
    # A part of the table has its share of the log, and the keys fall into 16 of 64.
    logged = table("logged", log_removed=30_000, keep_for=2, **fields)
    twins = Twins(*plain, logged, **where)
    alone = jde.Tables([table("logged")])
    replica, marks, at = alone.init(1), {}, None
    for seed in range(5):
        train(twins, seed)
        if seed == 2:
            jde.checkpoint.save(tmp_path, seed, twins.state, tables=twins.coll)
            empty = twins.coll.init(9)
            restored = jde.checkpoint.restore(tmp_path, empty, tables=twins.coll)
            twins.state = restored.tree
        if seed == 3 and fields["tier"] is None:
            grow(twins, logged=2 * SLOTS)
            alone, replica = alone.grow(replica, {"logged": 2 * SLOTS})
        # Without known_keys, so the log must reach back each time.
        deltas, marks = twins.coll.export_delta(twins.state, marks, tables=["logged"])
        replica = alone.apply_delta(replica, "logged", deltas["logged"], at=at)
        text = json.dumps(marks["logged"].to_json())
        at = jde.Mark.from_json(json.loads(text))
        marks = {"logged": at}
        assert_same_rows(
            export(alone, replica, "logged"), export(twins.coll, twins.state, "logged")
        )
    stats = twins.coll.stats(twins.state)
    for cause in ("evicted", "evicted_young", "erased", "removed_by_rule"):
        assert stats[f"logged/{cause}"] == twins.oracle.stats()[f"logged/{cause}"] > 0
    twins.check()
