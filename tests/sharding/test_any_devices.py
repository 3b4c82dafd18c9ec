# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Row-wise tables on numbers of devices that do not divide their buckets."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from growth import grow
from jax_dynemb._src.files.checkpoint.arrays import StoredArray
from jax_dynemb._src.ops import read_log
from jax_dynemb.lifecycle import Rule
from meshes import mesh_of
from support import Twins, assert_same_rows, compiled, export, gradients
from tiered import TIER

ADAM = jde.optim.adam(0.1)


def tables(**fields) -> list[jde.TableConfig]:
    """Bags, sequences, counted ids; two buckets, and some more."""
    common: dict[str, Any] = {"optimizer": ADAM, **fields}
    return [
        jde.TableConfig("small", 4, 100, pooling="sum", **common),
        jde.TableConfig("large", 4, 2000, score_strategy="lfu", **common),
    ]


def batch(seed: int, size: int = 30) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "small": rng.integers(-1, 90, (size, 2)),
        "large": rng.integers(-1, 900, size),
    }


@pytest.mark.parametrize("devices", [3, 5, 6, 7, 8])
def test_they_equal_one_device(devices):
    twins = Twins(*tables(), mesh=mesh_of(devices))
    for step in range(2):
        twins.train(batch(step), seed=step)
    twins.check()
    of_each = -(-2 // devices) + -(-16 // devices)
    assert twins.state["small+1"].index.shape[0] == devices * of_each
    if devices != 6:  # the others compile no more programs
        return
    twins.find(batch(5))
    twins.insert({"large": np.arange(950, 980)}, {"large": np.ones((30, 4))})
    twins.erase({"small": [3, 4, 5]})
    twins.check()
    state, coll = twins.state, twins.coll
    for name, buckets in (("small", 2), ("large", 16)):
        assert sum(coll.bucket_stats(state)[name].occupancy) == buckets
    twins.erase_where({"large": {"unused_for": 0, "count_below": 2, "combine": "any"}})
    twins.check()


def test_full_buckets_and_more_ids_than_a_round_takes():
    evicts = jde.TableConfig("e", 2, 700)
    refuses = dataclasses.replace(
        evicts, name="r", feature_names=("r",), on_full="refuse"
    )
    twins = Twins(evicts, refuses, mesh=mesh_of(5), exchange_factor=0.3)
    for seed in range(3):
        ids = np.random.default_rng(seed).choice(3000, 900, replace=False)
        twins.lookup({"e": ids, "r": ids})
    twins.check()
    stats = twins.coll.stats(twins.state)
    assert stats["e/evicted"] > 0 and stats["r/refused"] > 0
    assert stats["e/exchange_overflows"] > 0


@pytest.mark.parametrize("devices", [3, 6])
def test_growth_moves_buckets_to_their_owners(devices):
    twins = Twins(*tables(), mesh=mesh_of(devices))
    twins.train(batch(0, 60), seed=0)
    grow(twins, small=256 * 3, large=4096)
    twins.check()
    twins.train(batch(1, 60), seed=1)
    twins.check()
    assert twins.coll.tables["large"].num_buckets == 32
    buckets = [config.num_buckets for config in twins.coll.tables.values()]
    of_each = sum(-(-n // devices) for n in buckets)
    assert twins.state["small+1"].index.shape[0] == devices * of_each


def arrays_of(folder: Path) -> dict[str, np.ndarray]:
    """All arrays of the tables in a checkpoint, as orbax would read them."""
    fields = json.loads((folder / "state" / "jax_dynemb.json").read_text())
    found = {}
    for name, (shape, _) in fields["leaves"].items():
        array = StoredArray(folder, name)
        assert array.shape == tuple(shape), name
        found[name] = array.read(0, shape[0])()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("tier", [None, TIER], ids=["plain", "tiered"])
def test_a_checkpoint_is_the_same_on_any_mesh(tmp_path, tier):
    configs = tables(tier=tier)
    colls = {n: jde.Tables(configs, mesh=mesh_of(n)) for n in (8, 6, 5)}
    colls[1] = jde.Tables(configs, share_arrays=False)
    state = colls[8].init(0)
    run = compiled(colls[8])
    ids = {name: jde.ids(x) for name, x in batch(0, 64).items()}
    rows, residual, state = run.lookup(state, ids, None, None)
    d_rows = {n: jnp.asarray(gradients(x.shape, 1)) for n, x in rows.items()}
    state = run.apply_gradients(state, residual, d_rows, None)
    want = {name: export(colls[8], state, name) for name in ("small", "large")}
    counts = colls[8].stats(state)
    written = None
    for number, devices in enumerate((8, 6, 1, 5, 8)):
        coll, folder = colls[devices], tmp_path / str(number)
        if number:
            before = tmp_path / str(number - 1)
            state = jde.checkpoint.restore(before, coll.init(7), tables=coll).tree
        for name, rows in want.items():
            assert_same_rows(export(coll, state, name), rows)
        got = coll.stats(state)
        for key in ("rows", "inserted", "step", "lookups", "hits", "misses"):
            for name in want:
                assert got[f"{name}/{key}"] == counts[f"{name}/{key}"]
        jde.checkpoint.save(folder, 1, state, tables=coll, wait=True)
        found = arrays_of(folder / "1")
        for name, array in found.items():
            if "counters" not in name:
                np.testing.assert_array_equal(array, (written or found)[name], name)
        written = found
    # It trains on as if nothing had been in between.
    rows, residual, state = run.lookup(state, ids, None, None)
    state = run.apply_gradients(state, residual, d_rows, None)
    assert colls[8].stats(state)["large/lost_updates"] == 0


def test_what_a_checkpoint_says_of_removed_keys(tmp_path):
    """Logs of other rings begin behind all heads: a delta compares keys then."""
    configs = [jde.TableConfig("t", 4, 1024, log_removed=64)]
    one, six = jde.Tables(configs), jde.Tables(configs, mesh=mesh_of(6))
    ids = {"t": jde.ids(np.arange(50))}
    state = one.lookup(one.init(0), ids)[2]
    state = one.erase(state, {"t": jde.ids(np.arange(9))})
    jde.checkpoint.save(tmp_path, 1, state, tables=one, wait=True)
    state = jde.checkpoint.restore(tmp_path, six.init(3), tables=six).tree
    state = six.erase(state, {"t": jde.ids(np.arange(20, 25))})
    log = np.asarray(state["t"].removed)
    assert read_log(log, np.zeros(6, np.uint64)) is None
    left = export(six, state, "t")
    assert sorted(left) == [*range(9, 20), *range(25, 50)]


def test_rules_by_rank_and_admission_counts():
    rule = jde.admission.Frequency(2, jde.admission.Exact(900))
    configs = [jde.TableConfig("t", 4, 1024, admission=rule, score_strategy="lfu")]
    found = []
    placements: list[dict[str, Any]] = [{}, {"mesh": mesh_of(7)}]
    for placement in placements:
        coll = jde.Tables(configs, **placement)
        state, run = coll.init(0), compiled(coll)
        for seed in range(3):
            draw = np.random.default_rng(seed).integers(0, 200, 140)
            ids = {"t": jde.ids(draw)}
            *_, state = run.lookup(state, ids, None, None)
        state = coll.erase_where(state, {"t": Rule(keep_at_most=60)})[1]
        found.append(export(coll, state, "t"))
    assert_same_rows(*found)
    assert len(found[0]) == 60


@pytest.mark.slow
def test_tiered_growth():
    config = dataclasses.replace(tables(tier=TIER)[1], name="t", feature_names=("t",))
    plain = dataclasses.replace(config, tier=None)
    found = []
    both: list[tuple[jde.TableConfig, dict[str, Any]]]
    both = [(config, {"mesh": mesh_of(3)}), (plain, {})]
    for each, placement in both:
        coll = jde.Tables([each], **placement)
        run, state = compiled(coll), coll.init(0)
        ids = {"t": jde.ids(np.arange(300))}
        rows, residual, state = run.lookup(state, ids, None, None)
        d_rows = {"t": jnp.asarray(gradients(rows["t"].shape, 1))}
        state = run.apply_gradients(state, residual, d_rows, None)
        coll, state = coll.grow(state, {"t": 4096})
        rows, residual, state = compiled(coll).lookup(state, ids, None, None)
        state = compiled(coll).apply_gradients(state, residual, d_rows, None)
        found.append(export(coll, state, "t"))
    assert_same_rows(*found)


ADVICE = """
import jax, re
import jax_dynemb as jde
from jax.sharding import Mesh
import numpy as np

def mesh_of(n):
    return Mesh(np.array(jax.devices()[:n]), ("d",))

for n in (1, 2, 3, 5, 6, 7, 12, 24, 96, 128):
    for capacity in (1, 100, 1100, 9000, 10**6):
        for sharding in ("row_wise", "replicated", "table_wise"):
            config = jde.TableConfig("t", 16, capacity, sharding=sharding)
            jde.Tables([config], mesh=mesh_of(n))
    dim, refused = 16, 0
    while True:
        config = jde.TableConfig("t", dim, 100, sharding="column_wise")
        try:
            coll = jde.Tables([config], mesh=mesh_of(n))
            break
        except ValueError as error:
            refused += 1
            dim = int(re.search(r"multiple of (\\d+),", str(error))[1])
    assert refused <= 1, n
config = jde.TableConfig("t", 4, 3000, optimizer=jde.optim.sgd(0.1))
for n in (24, 96):
    coll = jde.Tables([config], mesh=mesh_of(n))
    state = jax.jit(coll.lookup)(coll.init(0), {"t": jde.ids(np.arange(200))})[2]
    keys = sorted(k for chunk in coll.export(state, "t") for k in chunk.keys.tolist())
    assert keys == list(range(200)), n
print("done")
"""


@pytest.mark.slow
def test_advice_is_accepted_and_24_and_96_devices():
    flags = "--xla_force_host_platform_device_count=128"
    environment = {
        "XLA_FLAGS": flags,
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(Path(jde.__file__).parents[1]),
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "PATH": "/usr/bin:/bin",
    }
    result = subprocess.run(
        [sys.executable, "-P", "-c", ADVICE],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
    )
    assert result.stdout.strip() == "done", result.stderr[-2000:]


def test_tables_for_serving_are_those_of_one_device():
    coll = jde.Tables(tables(), mesh=mesh_of(3))
    ids = {name: jde.ids(x) for name, x in batch(0).items()}
    state = compiled(coll).lookup(coll.init(0), ids, None, None)[2]
    alone, frozen = jde.export.frozen(coll, state)
    assert frozen["large"].index.shape[0] == 16
    for name in ("small", "large"):
        rows = export(coll, state, name)
        assert export(alone, frozen, name).keys() == rows.keys()
    assert alone.stats(frozen)["large/rows"] == coll.stats(state)["large/rows"]
