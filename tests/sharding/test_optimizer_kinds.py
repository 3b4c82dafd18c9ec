# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Every optimizer on a mesh: the oracle is one device."""

import numpy as np
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from optimizer_kinds import KINDS, LOOSE, SUM_ROWS
from support import Twins

STRATEGIES = ("row_wise", "table_wise", "replicated")


def table(name: str, kind: str, **options) -> jde.TableConfig:
    return jde.TableConfig(name, 8, 1024, optimizer=KINDS[kind], **options)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_states_are_those_of_one_device(kind):
    tables = [table(s, kind, sharding=s) for s in STRATEGIES]
    if kind not in SUM_ROWS:
        tables.append(table("column_wise", kind, sharding="column_wise"))
    twins = Twins(*tables, mesh=mesh_of(2))
    for seed in range(3):
        rng = np.random.default_rng(seed)
        twins.train({t.name: rng.integers(-1, 60, 32) for t in tables}, seed=seed)
    twins.check(LOOSE)


@pytest.mark.parametrize("kind", sorted(SUM_ROWS))
def test_sums_over_a_row_need_the_whole_row(kind):
    config = table("t", kind, sharding="column_wise")
    with pytest.raises(ValueError, match=r"'t' is column-wise.*sharding='row_wise'"):
        jde.Tables([config], mesh=mesh_of(2))


def test_frozen_tables_and_clipped_gradients_on_a_mesh():
    tables = [
        table("still", "lion", trainable=False),
        jde.TableConfig("none", 8, 1024, optimizer=jde.optim.none()),
        table("clipped", "momentum", max_gradient=0.1, pooling="mean"),
    ]
    twins = Twins(*tables, mesh=mesh_of(2))
    for seed in range(2):
        rng = np.random.default_rng(seed)
        ids = {t.name: rng.integers(-1, 60, (8, 2)) for t in tables}
        twins.train(ids, seed=seed)
    twins.check(LOOSE)


def test_reduced_rows_of_a_mesh_come_with_their_keys():
    coll = jde.Tables([table("t", "momentum")], mesh=mesh_of(2))
    ids = np.array([5, 6, 5, 7, 9, 9, -1, 5])
    rows, residual, state = coll.lookup(coll.init(0), {"t": jde.ids(ids)})
    d_rows = {"t": np.ones(rows["t"].shape, np.float32)}
    reduced, _ = coll.reduce_gradients(state, residual, d_rows)
    (own,) = reduced.values()
    live = np.asarray(own.slots) >= 0
    keys = np.asarray(own.keys)[live][:, 0].tolist()
    counts = np.asarray(own.grads)[live][:, 0].tolist()
    assert dict(zip(keys, counts, strict=True)) == {5: 3, 6: 1, 7: 1, 9: 2}
