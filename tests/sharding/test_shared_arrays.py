# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Row-wise tables of one width in shared arrays: equal to tables in their own.

Everything is compared bit for bit: sums of gradients are exact here, so one device
has the same rows too.
"""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from jax_dynemb._src.files.checkpoint.arrays import StoredArray
from jax_dynemb.lifecycle import Rule
from jax_dynemb.testing import assert_in_place
from meshes import collectives, mesh_of
from support import (
    HostJagged,
    assert_same_rows,
    export,
    to_device,
    train_step,
    without_identity,
)


def tables() -> list[jde.TableConfig]:
    """Two widths that alternate, and all that may differ in the same arrays."""
    make = functools.partial(jde.TableConfig, optimizer=jde.optim.adagrad(0.1))
    admission = jde.admission.Frequency(2, jde.admission.Exact(capacity=2048))
    initializer = jde.initializers.uniform(-0.5, 0.5)
    return [
        make("rows", dim=4, capacity=300, feature_names=("a", "b")),
        make("wide", dim=6, capacity=2000, pooling="mean"),
        make("sums", dim=4, capacity=128 * 40, pooling="sum"),
        make("full", dim=4, capacity=256, score_strategy="lfu"),
        make("refuses", dim=6, capacity=256, on_full="refuse"),
        make("random", dim=4, capacity=1024, initializer=initializer, hash_seed=7),
        make("counts", dim=4, capacity=512, admission=admission),
        make("more", dim=4, capacity=512, admission=admission),
    ]


SHARED = {"rows+3", "wide+1", "counts+1"}


def batch(seed: int) -> tuple[dict, dict]:
    draw = np.random.default_rng(seed)
    bags = [list(draw.integers(0, 300, n)) for n in draw.integers(0, 4, 24)]
    ids = {
        "a": draw.integers(-1, 400, 40),
        "b": draw.integers(-1, 400, (16, 3)),
        "wide": HostJagged.of(bags, capacity=80),
        "sums": draw.integers(-1, 300, (24, 3)),
        "full": draw.integers(0, 2000, 320),
        "refuses": draw.integers(0, 2000, 320),
        "random": draw.integers(0, 3000, 64),
        "counts": draw.integers(0, 60, 64),
        "more": draw.integers(0, 60, 64),
    }
    weights = {"sums": 2.0 ** draw.integers(-2, 2, (24, 3)).astype(np.float32)}
    return {name: to_device(each) for name, each in ids.items()}, weights


def whole_gradients(rows: Any, seed: int) -> dict[str, np.ndarray]:
    """Gradients of few bits, so that sums do not depend on the order."""
    draw = np.random.default_rng(seed)
    return {f: draw.integers(-2, 3, x.shape).astype("f4") for f, x in rows.items()}


def trained(coll: jde.Tables, steps: int = 3) -> tuple[Any, list[Any]]:
    """Some steps; the last update is of two lookups, between which rows are erased."""
    lookup, update = jax.jit(coll.lookup), jax.jit(coll.apply_gradients)
    state, seen = coll.init(5), []
    pending: list[Any] = []
    for step in range(steps):
        ids, weights = batch(step)
        rows, residual, state = lookup(state, ids, weights)
        seen.append(dict(rows))
        pending.append((residual, whole_gradients(rows, step)))
        if step < steps - 2:
            state = update(state, *pending.pop())
    state = coll.erase(state, {"rows": jde.ids(np.arange(40))})
    residuals, gradients = map(list, zip(*pending, strict=True))
    return update(state, residuals, gradients), seen


def life(coll: jde.Tables) -> tuple[jde.Tables, Any, list[Any]]:
    """Every operation once; what it returned, and the tables at the end."""
    state, seen = trained(coll)
    ids, weights = batch(7)
    rows, found, state = jax.jit(coll.find)(state, ids, weights)
    seen += [dict(rows), dict(found)]
    rows, found, state = coll.find(state, ids, weights, touch=True)
    seen += [dict(rows), dict(found)]
    new = {"sums": np.arange(5000, 5030), "wide": np.arange(5000, 5030)}
    values = {"sums": np.ones((30, 4), "f4"), "wide": np.ones((30, 6), "f4")}
    scores = {"sums": np.arange(90, 120, dtype=np.uint64)}
    keys = {name: jde.ids(each) for name, each in new.items()}
    state = coll.insert(state, keys, values, scores=scores)
    state = coll.erase(state, {"full": jde.ids(np.arange(500))})
    state = coll.pin(state, {"sums": jde.ids(np.arange(5000, 5010))})
    removed, state = coll.erase_where(
        state, {"sums": Rule(unused_for=1), "wide": Rule(keep_at_most=40)}
    )
    seen.append(dict(removed))
    occupied = {n: s.occupancy for n, s in coll.bucket_stats(state).items()}
    seen.append(occupied)
    state = coll.decay(state, {"full": 0.5})
    state = coll.set_score(state, {"rows": 1000})
    seen.append(coll.get_score(state))
    coll, state = coll.grow(state, {"rows": 900, "full": 512})
    ids, weights = batch(8)
    rows, residual, state = coll.lookup(state, ids, weights)
    d_rows = whole_gradients(rows, 8)
    per_weight, state = coll.weight_gradients(state, residual, d_rows)
    seen += [dict(rows), dict(per_weight)]
    state = coll.apply_gradients(state, residual, d_rows)
    for name in ("counts", "more"):
        counted, counts = coll.admission_counts(state, name)
        order = np.argsort(counted)
        seen.append({"keys": counted[order], "counts": counts[order]})
    return coll, state, seen


# Of a full bucket, the order of the ids decides which rows stay.
CROWDED = {"full", "refuses"}


def same_arrays(got: list[Any], want: list[Any], of_mesh: bool = True) -> None:
    for ours, theirs in zip(got, want, strict=True):
        assert ours.keys() == theirs.keys()
        for name, each in ours.items():
            if of_mesh:
                np.testing.assert_array_equal(each, theirs[name], err_msg=name)
            elif name not in CROWDED:  # owners add up their parts of a bag
                ours_, theirs_ = (np.asarray(x, "f8") for x in (each, theirs[name]))
                np.testing.assert_allclose(ours_, theirs_, 1e-5, 1e-6, err_msg=name)


def same_tables(coll, state, other, other_state, of_mesh: bool = True) -> None:
    for name in set(coll.tables) - (set() if of_mesh else CROWDED):
        rows = export(coll, state, name)
        assert rows
        assert_same_rows(rows, export(other, other_state, name))
    ours, theirs = coll.stats(state), other.stats(other_state)
    if of_mesh:
        assert ours == theirs
        return
    of_owners = ("exchange", "fullest_shard", "hits", "misses", "not_admitted", "lost")
    for name, number in ours.items():
        table, counter = name.split("/")
        if table not in CROWDED and not counter.startswith(of_owners):
            assert number == theirs[name], name


@functools.cache
def one_device() -> tuple[jde.Tables, Any, list[Any]]:
    return life(jde.Tables(tables()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "pooled"),
    [
        (2, "sums"),
        (4, "rows"),
    ],
)
def test_every_operation(devices, pooled):
    make = functools.partial(
        jde.Tables, tables(), mesh=mesh_of(devices), exchange_pooled=pooled
    )
    shared, own = make(), make(share_arrays=False)
    assert set(shared.init(0)) == SHARED and set(own.init(0)) == set(own.tables)
    ours, theirs = life(shared), life(own)
    same_arrays(ours[2], theirs[2])
    same_tables(*ours[:2], *theirs[:2])
    same_arrays(ours[2], one_device()[2], of_mesh=False)
    same_tables(*ours[:2], *one_device()[:2], of_mesh=False)
    stats = ours[0].stats(ours[1])
    assert stats["rows/lost_updates"] > 0 and stats["full/evicted"] > 0
    assert stats["refuses/refused"] > 0 and stats["sums/lost_updates"] == 0


@pytest.mark.slow
def test_only_the_tables_of_a_call_move():
    coll = jde.Tables(tables(), mesh=mesh_of(2))
    state, _ = trained(coll)
    before = {name: export(coll, state, name) for name in coll.tables}
    counted = coll.stats(state)
    ids = {"a": batch(9)[0]["a"]}
    rows, residual, state = coll.lookup(state, ids)
    state = coll.apply_gradients(state, residual, whole_gradients(rows, 9))
    state = coll.insert(state, {"rows": jde.ids([1])}, {"rows": np.ones((1, 4), "f4")})
    coll, state = coll.grow(state, {"rows": 900})
    for name in set(coll.tables) - {"rows"}:
        assert_same_rows(export(coll, state, name), before[name])
    after = coll.stats(state)
    moved = {name.split("/")[0] for name in after if after[name] != counted[name]}
    assert moved == {"rows"}
    state = coll.erase_where(state, {"rows": Rule(unused_for=0, keep_at_most=0)})[1]
    assert not export(coll, state, "rows") and export(coll, state, "sums")


def test_which_tables_share():
    make = functools.partial(jde.TableConfig, dim=8, capacity=1024)
    configs = [
        make("one"),
        make("columns", sharding="column_wise"),
        make("two"),
        make("copies", sharding="replicated"),
        make("first", sharding="table_wise"),
        make("second", sharding="table_wise"),
        make("log", log_removed=128),
        make("tiered", tier=jde.tiers.host(hbm_fraction=0.5)),
        make("extra", optimizer=optax.adam(0.1)),
        make("three"),
    ]
    coll = jde.Tables(configs, mesh=mesh_of(2))
    names = {name: coll.state_name(name) for name in coll.tables}
    shared = {name for name, arrays in names.items() if arrays == "one+2"}
    assert shared == {"one", "two", "three"}
    assert names["first"] == names["second"] != "one+2"
    alone = set(names) - shared - {"first", "second"}
    assert all(names[name] == name for name in alone)
    inside = jde.Tables([configs[0], configs[2], configs[-1]], axis_name="data")
    assert inside.state_name("two") == "one+2" and inside.share_arrays is None
    apart = jde.Tables(configs, mesh=mesh_of(2), share_arrays=False)
    assert apart.state_name("two") == "two" and apart != coll
    spec = coll.partition_specs()["one+2"]
    assert spec.index == jax.sharding.PartitionSpec(("data",))


def test_a_residual_of_another_run_is_refused_by_table():
    coll = jde.Tables(tables()[:3], mesh=mesh_of(2))
    ids, weights = batch(0)
    ids = {name: ids[name] for name in ("a", "b", "wide", "sums")}
    _, residual, _ = coll.lookup(coll.init(0), ids, weights)
    rows, _, state = coll.lookup(coll.init(0), ids, weights)
    with pytest.raises(ValueError, match="other tables than this state"):
        coll.apply_gradients(state, residual, whole_gradients(rows, 0))
    before = export(coll, state, "rows")
    traced = jax.jit(coll.apply_gradients)
    state = traced(state, residual, whole_gradients(rows, 0))
    assert_same_rows(export(coll, state, "rows"), before)  # nothing is trained


@pytest.mark.slow
@pytest.mark.collectives  # peers are not known inside, so rooms would differ
def test_inside_of_a_shard_map():
    configs = [dataclasses.replace(t, pooling=None) for t in tables()[:6:2]]
    coll, mesh = jde.Tables(configs, mesh=mesh_of(4)), mesh_of(4)
    inside = jde.Tables(configs, axis_name="data")
    ids = {f: x for f, x in batch(0)[0].items() if f in coll.features and f != "b"}
    split = jax.sharding.PartitionSpec("data")

    def step(state, ids):
        rows, residual, state = inside.lookup(state, ids)
        return rows, inside.apply_gradients(state, residual, rows)

    specs = coll.partition_specs()
    run = jax.shard_map(
        step,
        mesh=mesh,
        in_specs=(specs, split),
        out_specs=(split, specs),
        check_vma=False,
    )
    rows, state = jax.jit(run)(coll.init(5), ids)
    want, residual, other = coll.lookup(coll.init(5), ids)
    same_arrays([dict(rows)], [dict(want)])
    other = coll.apply_gradients(other, residual, want)
    same_tables(coll, state, coll, other)


# ---- checkpoints -----------------------------------------------------------------


def files(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What a checkpoint says of tables, and its arrays as orbax would read them."""
    fields = json.loads((folder / "1" / "state" / "jax_dynemb.json").read_text())
    arrays = {}
    for name, (shape, _) in fields["leaves"].items():
        array = StoredArray(folder / "1", name)
        arrays[name] = without_identity(array.read(0, shape[0])())
    return fields["tables"], arrays


def saved(folder: Path, coll: jde.Tables, state: Any) -> Path:
    jde.checkpoint.save(folder, 1, state, tables=coll, wait=True)
    return folder


@pytest.mark.slow
def test_a_checkpoint_is_that_of_tables_with_arrays_of_their_own(tmp_path):
    """So an earlier version reads it, and what that wrote is read here."""
    found = []
    for share in (None, False):
        coll = jde.Tables(tables(), mesh=mesh_of(4), share_arrays=share)
        state, _ = trained(coll)
        found.append(files(saved(tmp_path / str(share), coll, state)))
    (ours, arrays), (theirs, expected) = found
    assert ours == theirs and arrays.keys() == expected.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


@pytest.mark.slow
def test_checkpoints_between_all_layouts(tmp_path):
    colls = {
        (n, share): jde.Tables(
            tables(), mesh=mesh_of(n) if n else None, share_arrays=share
        )
        for n in (0, 2, 3, 8)
        for share in (None, False)
    }
    first = colls[8, None]
    state, _ = trained(first)
    order = [(8, None), (2, False), (3, None), (0, None), (8, False), (2, None)]
    folder = saved(tmp_path / "first", first, state)
    for key in order[1:]:
        coll = colls[key]
        restored = jde.checkpoint.restore(folder, coll.init(9), tables=coll)
        same_tables(coll, restored.tree, first, state, of_mesh=False)
        folder = saved(tmp_path / f"{key}", coll, restored.tree)
        assert key == (0, None) or not restored.notes


@pytest.mark.slow
def test_a_table_that_a_checkpoint_lacks_stays(tmp_path):
    old = jde.Tables([t for t in tables() if t.name != "sums"], mesh=mesh_of(2))
    was, _ = trained_without(old, "sums")
    folder = saved(tmp_path, old, was)
    coll = jde.Tables(tables(), mesh=mesh_of(2))
    state, _ = trained(coll)
    before = export(coll, state, "sums")
    with pytest.raises(ValueError, match="no table 'sums'"):
        jde.checkpoint.restore(folder, state, tables=coll)
    assert_same_rows(export(coll, state, "sums"), before)  # arrays are as they were
    restored = jde.checkpoint.restore(folder, state, tables=coll, strict=False).tree
    assert_same_rows(export(coll, restored, "sums"), before)
    assert_same_rows(export(coll, restored, "rows"), export(old, was, "rows"))


def trained_without(coll: jde.Tables, name: str) -> tuple[Any, Any]:
    ids, _ = batch(3)
    ids = {f: each for f, each in ids.items() if f != name}
    rows, residual, state = coll.lookup(coll.init(1), ids)
    return coll.apply_gradients(state, residual, whole_gradients(rows, 3)), rows


@pytest.mark.slow
def test_a_restore_into_other_sizes_and_types(tmp_path):
    """Rows are inserted again where sizes differ; arrays may be types only."""
    coll = jde.Tables(tables(), mesh=mesh_of(2))
    state, _ = trained(coll)
    folder = saved(tmp_path, coll, state)
    larger = [
        dataclasses.replace(t, capacity=1024) if t.name == "rows" else t
        for t in tables()
    ]
    other = jde.Tables(larger, mesh=mesh_of(2))
    types = jax.eval_shape(other.init, np.uint32(0))
    restored = jde.checkpoint.restore(folder, types, tables=other)
    assert [note for note in restored.notes if "'rows'" in note]
    for name in coll.tables:
        assert_same_rows(export(other, restored.tree, name), export(coll, state, name))


# ---- programs --------------------------------------------------------------------


def test_a_step_is_in_place_and_has_as_many_calls_as_one_of_a_table():
    names = [f"t{n}" for n in range(6)]
    mesh, found = mesh_of(4), []
    ids = {n: jde.ids(np.arange(64) * (i + 3)) for i, n in enumerate(names)}
    for some in (names[:1], names):
        configs = [jde.TableConfig(n, dim=8, capacity=65_536) for n in some]
        coll = jde.Tables(configs, mesh=mesh)
        step = jax.jit(functools.partial(train_step, coll), donate_argnums=0)
        state, own = coll.init(0), {n: ids[n] for n in some}
        assert len(state) == 1
        assert_in_place(step, state, own)
        text: Any = step.lower(state, own).compile().as_text()
        calls = text.count("custom-call(")
        found.append((collectives(text), calls, len(jax.tree.leaves(state))))
    assert found[0] == found[1] and found[0][1] > 0


@pytest.mark.slow
def test_rows_that_are_read_together_have_the_same_bits():
    """Features of few and of many rows, in bags and alone, of two widths."""
    make = functools.partial(jde.TableConfig, capacity=4096)
    configs = [
        make("s", dim=64, pooling="sum"),
        make("t", dim=64, pooling="sum"),
        make("u", dim=64, feature_names=("u", "v")),
        make("w", dim=8),
    ]
    draw = np.random.default_rng(0)
    shapes = {"s": (16, 4), "t": (640, 4), "u": (48,), "v": (1200,), "w": (48,)}
    ids = {f: jde.ids(draw.integers(0, 900, s)) for f, s in shapes.items()}
    coll = jde.Tables(configs, mesh=mesh_of(2), exchange_pooled="rows")
    alone = jde.Tables(configs)
    state, other = coll.init(3), alone.init(3)
    for _ in range(2):
        rows, residual, state = coll.lookup(state, ids)
        want, expected, other = alone.lookup(other, ids)
        same_arrays([dict(rows)], [dict(want)])
        ones = jax.tree.map(jnp.ones_like, dict(rows))
        state = coll.apply_gradients(state, residual, ones)
        other = alone.apply_gradients(other, expected, ones)
