# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Growth on a mesh: as on one device, and nothing moves between devices."""

from typing import Any

import numpy as np
import pytest
from jax.sharding import PartitionSpec

import jax_dynemb as jde
from growth import TABLES, check_growth, grow
from jax_dynemb._src.engines.shard import export_index
from jax_dynemb._src.table.growth import grown_arrays
from meshes import collectives, mesh_of
from support import Twins, compiled


@pytest.mark.slow
def test_as_on_one_device():
    check_growth(Twins(*TABLES, mesh=mesh_of(4)))


@pytest.mark.slow
def test_tables_that_share_arrays_grow_together():
    common: dict[str, Any] = {"dim": 8, "capacity": 1024}
    tables = [
        jde.TableConfig(name, sharding="table_wise", **common) for name in ("a", "b")
    ]
    columns = jde.TableConfig("c", sharding="column_wise", **common)
    twins = Twins(*tables, columns, mesh=mesh_of(2))
    assert len(twins.state) == 2
    for step in range(2):
        rng = np.random.default_rng(step)
        ids = {name: rng.integers(0, 2000, 300) for name in "abc"}
        twins.train(ids, seed=step)
        twins.check()
        if step == 0:
            grow(twins, a=2048, c=2048)
            assert twins.coll.tables["b"].capacity == 2048
            twins.oracle.grow([twins.coll.tables["b"]])
            twins.check()


def test_nothing_moves_between_devices():
    table = jde.TableConfig("t", dim=64, capacity=1024, optimizer=jde.optim.adam(0.1))
    coll = jde.Tables([table], mesh=mesh_of(4))
    ids = {"t": jde.ids(np.arange(600))}
    _, _, state = compiled(coll).lookup(coll.init(0), ids, None, None)
    bigger, new = coll.grow(state, {"t": 2048})
    before, after = (keys_by_shard(*pair) for pair in [(coll, state), (bigger, new)])
    assert before == after and len(before) == 4
    assert sum(map(len, before)) == 600

    stats = bigger.stats(new)
    assert stats["t/rows"] == 600 and stats["t/capacity"] == 2048
    fullest = max(len(keys) for keys in before) / (2048 / 4)
    assert stats["t/fullest_shard"] == pytest.approx(fullest)
    for array in (new["t"].values, new["t"].index, new["t"].optimizer["mu"]):
        assert array.sharding.spec == PartitionSpec(("data",))
        assert {shard.data.shape[0] * 4 for shard in array.addressable_shards} == {
            array.shape[0]
        }

    program = grown_arrays.lower(coll.engine, (("t", 2),), state["t"]).compile()
    entry, loops = collectives(program.as_text())
    assert not entry and not loops
    # There is no copy of a table beside the old and the new one.
    sizes = program.memory_analysis()
    assert sizes.temp_size_in_bytes < sizes.argument_size_in_bytes / 2


def keys_by_shard(coll: jde.Tables, state) -> list[set[int]]:
    """The keys that each device holds."""
    shards = coll.engine.shards(state, "t")
    keys = [np.concatenate([k for k, _ in export_index([one])]) for one in shards]
    assert all(len(np.unique(some)) == len(some) for some in keys)
    return [set(some.tolist()) for some in keys]
