# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""When a table is due to grow: arithmetic on counters."""

from typing import Any

import pytest

import jax_dynemb as jde
from meshes import mesh_of


def table(name: str = "t", **options: Any) -> jde.TableConfig:
    return jde.TableConfig(name, **{"dim": 2, "capacity": 1024, **options})


def due(config: jde.TableConfig, rows: int, refused: int = 0, before: Any = None):
    stats = {"t/rows": rows, "t/refused": refused}
    return jde.Tables([config]).growth_due(stats, before)


@pytest.mark.parametrize(
    ("rows", "expected"), [(0, None), (665, None), (666, 2048), (1024, 2048)]
)
def test_more_rows_than_the_share(rows, expected):
    found = due(table(score_strategy="no_eviction"), rows)
    assert found == ({} if expected is None else {"t": expected})


def test_doubles_until_there_is_room():
    assert due(table(on_full="refuse", grow_at=0.25), 1000) == {"t": 4096}


def test_stays_within_the_bound():
    for bound, expected in ((1024, {}), (2047, {"t": 2048}), (3000, {"t": 2048})):
        config = table(grow_at=0.25, max_capacity=bound)
        assert due(config, 1000) == expected


def test_sizes_that_tables_can_have():
    config = table(capacity=1016 * 128, score_strategy="no_eviction")
    assert config.num_buckets == 1016
    (size,) = due(config, config.num_slots).values()
    assert (
        jde.Tables([config]).plan_growth({"t": size}).coll.tables["t"].capacity == size
    )
    assert size % config.num_slots == 0


def test_refused_ids():
    refuses = table(on_full="refuse")
    assert due(refuses, 10, refused=1) == {"t": 2048}
    assert due(refuses, 10, refused=1, before={"t/refused": 1}) == {}
    assert due(refuses, 10, refused=2, before={"t/refused": 1}) == {"t": 2048}
    # Where rows are evicted, new ids of one batch may be refused too.
    assert due(table(max_capacity=4096), 10, refused=5) == {}


def test_a_table_that_evicts_keeps_its_size_without_a_bound():
    assert due(table(), 1024) == {}
    assert due(table(max_capacity=4096), 1024) == {"t": 2048}


def test_tables_that_grow_together_have_the_smallest_bound():
    both = [
        table("t", sharding="table_wise", max_capacity=8192),
        table("u", sharding="table_wise", max_capacity=1024),
    ]
    stats = {"t/rows": 1000, "t/refused": 0, "u/rows": 0, "u/refused": 0}
    assert jde.Tables(both, mesh=mesh_of(2)).growth_due(stats) == {}
    assert jde.Tables(both).growth_due(stats) == {"t": 2048}


def test_mistakes():
    coll = jde.Tables([table()])
    with pytest.raises(TypeError, match=r"stats_async\(state\).result\(\)"):
        coll.growth_due(coll.stats_async(coll.init(0)))
    with pytest.raises(TypeError, match="stats must be a dict"):
        jde.Tables([table()]).growth_due(None)
    with pytest.raises(ValueError, match="coll.stats_async"):
        jde.Tables([table()]).growth_due({"u/rows": 1})
    for share in (0, 1.5, "a", True):
        with pytest.raises(ValueError, match="grow_at must be"):
            table(grow_at=share)
    with pytest.raises(ValueError, match="max_capacity 512 is less than the 1024 rows"):
        table(max_capacity=512)
    with pytest.raises(ValueError, match="an int or None"):
        table(max_capacity=1.5)
    coll = jde.Tables([table(max_capacity=2048)])
    with pytest.raises(ValueError, match="raise max_capacity"):
        coll.grow(coll.init(0), {"t": 4096})
