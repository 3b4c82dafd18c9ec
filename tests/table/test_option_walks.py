# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Random options, random calls, copies by every way: the rows are those of NumPy.

Tables have room for all ids, so no row may be missing, strange or changed.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from oracle import ReferenceTables
from processes import NIGHTLY
from support import Rows, Twins, compiled, export, gradients, to_device

TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}
EXACT = {"rtol": 0.0, "atol": 0.0}
ENDS = [0, 1, -5, 2**63 - 1, -(2**63), 2**31, -(2**31) - 1, 2**32, -(2**32)]
KEYS = np.array([*ENDS, *np.random.default_rng(0).integers(-(2**62), 2**62, 50)])
OPTIM = jde.optim
OPTIMIZERS = {
    "sgd": OPTIM.sgd(0.1),
    "adagrad": OPTIM.adagrad(0.1),
    "adam": OPTIM.adam(0.05),
    "rowwise_adagrad": OPTIM.rowwise_adagrad(0.1, initial_accumulator_value=0.1),
    "ftrl": OPTIM.ftrl(0.1, l1=0.05, l2=0.01, beta=1.0),
    "optax": optax.sgd(0.1),
}
FREQUENCY = functools.partial(jde.admission.Frequency, 1)  # admits every key
OPTIONS: dict[str, list[Any]] = {
    "dim": [1, 3, 4],
    "capacity": [300, 1000],
    "score_strategy": ["timestamp", "lfu", "no_eviction"],
    "param_dtype": ["bfloat16"],
    "pooling": ["sum", "mean"],
    "sharding": ["table_wise", "column_wise", "replicated"],
    "tier": [jde.tiers.host(hbm_fraction=0.5)],
    "admission": [
        FREQUENCY(jde.admission.Sketch(1 << 13)),
        FREQUENCY(jde.admission.Exact(256)),
        jde.admission.Probability(1.0),
    ],
    "hash_seed": [12345],
    "state_dtype": [{"mu": "bfloat16"}],
    "log_removed": [512],
    "max_gradient": [0.5],
    "max_capacity": [4096],
    "keep_for": [100],
    "initializer": [jde.initializers.constant(0.25), jde.initializers.uniform(-1, 1)],
}
# Options that may differ between a table and its copy.
FREE = ("capacity", "sharding", "tier", "admission", "log_removed", "max_capacity")
FREE += ("pooling", "keep_for", "max_gradient", "hash_seed")
PLACEMENTS: list[dict[str, Any]] = [
    {},
    {"share_arrays": True},
    {"share_arrays": False},
    {"exchange_pooled": "sums"},
    {"exchange_pooled": "rows", "exchange_factor": 1.0},
]


class Walk(Twins):
    """Tables with random options beside the oracle.

    Args:
      seed: of everything.
      folder: for files.
    """

    def __init__(self, seed: int, folder: Path):
        self.rng, self.seed = np.random.default_rng(seed), seed
        self.folders = (folder / str(n) for n in itertools.count())
        self.publishes = bool(self.rng.random() < 0.5)
        names = [f"t{n}" for n in range(self.rng.integers(1, 4))]
        self.coll = self.drawn(lambda: {name: self.options() for name in names})
        self.state = self.coll.init(seed)
        if self.rng.random() < 0.3:
            self.state = jax.tree.map(committed, self.state)
        self.oracle = ReferenceTables(map(fused, self.coll.tables.values()), seed)
        self.jit = compiled(self.coll)

    def pick(self, values: Any) -> Any:
        return values[self.rng.integers(len(values))]

    def options(self) -> dict[str, Any]:
        """Draws the options of a table."""
        chosen = {n for n in OPTIONS if self.rng.random() < 0.25}
        chosen |= {"log_removed"} if self.publishes else set()
        options = {"dim": 8, "capacity": 256}
        options |= {n: self.pick(OPTIONS[n]) for n in OPTIONS if n in chosen}
        return options | {"optimizer": OPTIMIZERS[self.pick(list(OPTIMIZERS))]}

    def drawn(self, draw: Callable[[], dict[str, dict[str, Any]]]) -> jde.Tables:
        """Draws tables until their options do not exclude each other."""
        while True:
            devices, options = self.pick([1, 1, 2, 3, 4]), self.pick(PLACEMENTS)
            try:
                configs = [jde.TableConfig(n, **fields) for n, fields in draw().items()]
                mesh = mesh_of(devices) if devices > 1 else None
                return jde.Tables(configs, mesh, **options if mesh else {})
            except ValueError:
                continue

    def variant(self) -> jde.Tables:
        """Draws tables for the same rows, in another order at times."""

        def draw() -> dict[str, dict[str, Any]]:
            tables = list(self.coll.tables.values())
            return {t.name: self.other(t) for t in self.pick([tables, tables[::-1]])}

        return self.drawn(draw)

    def other(self, table: jde.TableConfig) -> dict[str, Any]:
        changed = {n for n in FREE if self.rng.random() < 0.3}
        changed -= {"log_removed"} if self.publishes else set()
        fields = {f.name: getattr(table, f.name) for f in dataclasses.fields(table)}
        defaults = {"capacity": 512, "sharding": "row_wise", "hash_seed": 0}
        defaults |= {"log_removed": 0}
        new = {n: self.pick([*OPTIONS[n], defaults.get(n)]) for n in changed}
        return {n: x for n, x in (fields | new).items() if n != "name"}

    def batch(self, by_table: bool = False) -> dict[str, np.ndarray]:
        """Draws ids of some tables; some are padding, some come twice."""
        size, ids = int(self.pick([0, 1, 12])), {}
        for name, table in self.coll.tables.items():
            bags = table.pooling is not None and not by_table
            drawn = self.rng.choice(KEYS, (size, 3) if bags else (size,))
            ids[name] = np.where(self.rng.random(drawn.shape) < 0.1, -1, drawn)
        keep = [name for name in ids if self.rng.random() < 0.8] or list(ids)
        return {name: ids[name] for name in keep}

    # ---- calls -------------------------------------------------------------------

    def step(self) -> None:
        self.train(self.batch(), seed=int(self.rng.integers(2**16)))

    def two_lookups(self) -> None:
        ids, seed = self.batch(), int(self.rng.integers(2**16))
        pairs = [self.lookup(ids) for _ in range(2)]
        d_rows = [{f: gradients(x.shape, seed) for f, x in r.items()} for r, _ in pairs]
        residuals, expected = zip(*(pair for _, pair in pairs), strict=True)
        self.apply((list(residuals), list(expected)), d_rows)

    def look(self) -> None:
        self.find(self.batch())

    def store(self) -> None:
        ids, rows = self.batch(by_table=True), {}
        for name, each in ids.items():
            shape = (*each.shape, self.coll.tables[name].dim)
            rows[name] = gradients(shape, int(self.rng.integers(2**16)))
        self.insert(ids, rows)

    def forget(self) -> None:
        self.erase(self.batch(by_table=True))

    def remove(self) -> None:
        norm = float(self.rng.random())
        self.erase_where({n: {"norm_below": norm} for n in self.batch(by_table=True)})

    def pin(self) -> None:
        ids = self.batch(by_table=True)
        self.state = self.coll.pin(
            self.state, {n: to_device(x) for n, x in ids.items()}
        )
        self.oracle.pin(ids)

    def empty(self) -> None:
        self.state = self.coll.clear(self.state)
        self.oracle.clear()

    def grow(self) -> None:
        name = self.pick(list(self.coll.tables))
        if (slots := self.coll.tables[name].num_slots) < 2048:
            self.coll, self.state = self.coll.grow(self.state, {name: 2 * slots})
            self.oracle.grow(map(fused, self.coll.tables.values()))
            self.jit = compiled(self.coll)

    def freeze(self) -> None:
        ids = self.batch()
        on_mesh = self.coll.placement is not None and self.rng.random() < 0.5
        served, arrays = jde.export.frozen(self.coll, self.state, on_mesh=on_mesh)
        rows, found, _ = served.find(arrays, {f: to_device(x) for f, x in ids.items()})
        expected, expected_found = self.oracle.find(ids)
        self.assert_rows(rows, expected)
        jax.tree.map(np.testing.assert_array_equal, dict(found), dict(expected_found))

    def publish(self) -> None:
        if not self.publishes:
            return
        folder = next(self.folders)
        tables = self.coll.tables
        served_by = jde.Tables(
            [dataclasses.replace(t, sharding="row_wise") for t in tables.values()],
            mesh_of(2) if self.rng.random() < 0.5 else None,
        )
        with jde.serving.Publisher(self.coll, folder) as publisher:
            publisher.flush(self.state)
            with jde.serving.Subscriber(folder, served_by, interval=0) as served:
                self.pick([self.step, self.store, self.forget, self.empty])()
                publisher.flush(self.state)
                served.update()
                with served.reading() as (_, state):
                    self.assert_found(served_by, state)

    def assert_found(self, coll: jde.Tables, state: Any) -> None:
        for name in coll.tables:
            got, want = export(coll, state, name), self.oracle.export(name)
            assert got.keys() == want.keys(), name
            rows = (Rows.of(got).values, Rows.of(want).values)
            np.testing.assert_allclose(*(np.asarray(x, "f") for x in rows), **TOLERANCE)

    # ---- copies ------------------------------------------------------------------

    def copy(self) -> None:
        """Goes on with a copy of all rows in other tables."""
        new, how = self.variant(), self.pick(COPIES)
        state = how(self, new)
        rows = {t: dict(self.oracle.tables[t].items()) for t in self.coll.tables}
        old, self.oracle = (
            self.oracle,
            ReferenceTables(map(fused, new.tables.values()), self.seed),
        )
        self.coll, self.state, self.jit = new, state, compiled(new)
        for name, table in self.oracle.tables.items():
            for key, row in rows[name].items():
                table.buckets[table._bucket_of(key)][key] = row
            table.step, table.clock = old.tables[name].step, old.tables[name].clock
        self.adopt(carries=how in (restored, with_deltas))

    def adopt(self, carries: bool) -> None:
        """Takes over what copies need not carry, and counters."""
        stats, clocks = self.coll.stats(self.state), self.coll.get_score(self.state)
        for name, table in self.oracle.tables.items():
            got = export(self.coll, self.state, name)
            assert got.keys() == self.oracle.export(name).keys(), name
            for key, row in self.oracle.export(name).items():
                if not carries:
                    row.score, row.state = got[key].score, dict(got[key].state)
                    row.pinned = row.pinned and stats[f"{name}/pinned"] > 0
            table.counts = {n: int(stats[f"{name}/{n}"]) for n in table.counts}
            table.clock = clocks[name] - 1
            if not carries:
                table.step = stats[f"{name}/step"]

    def compare(self) -> None:
        self.check(TOLERANCE)
        for name in self.coll.tables:  # so errors do not pile up
            got = export(self.coll, self.state, name)
            for key, row in self.oracle.export(name).items():
                row.values, row.state = got[key].values, dict(got[key].state)

    def run(self, calls: int) -> None:
        self.step()
        for _ in range(calls):
            getattr(self, self.pick(CALLS))()
            self.compare()


def committed(leaf: jax.Array) -> jax.Array:
    return jax.device_put(leaf, leaf.sharding)


def fused(table: jde.TableConfig) -> jde.TableConfig:
    """Replaces an optimizer of optax by its fused twin, which the oracle has."""
    if table.optimizer.kind:
        return table
    return dataclasses.replace(table, optimizer=OPTIMIZERS["sgd"])


def restored(walk: Walk, new: jde.Tables) -> Any:
    folder = next(walk.folders)
    jde.checkpoint.save(folder, 1, walk.state, tables=walk.coll)
    tree = walk.pick([new.init(walk.seed + 1), jax.eval_shape(lambda: new.init(0))])
    return jde.checkpoint.restore(folder, tree, tables=new, strict=False).tree


def with_deltas(walk: Walk, new: jde.Tables) -> Any:
    deltas, marks = walk.coll.export_delta(walk.state)
    state = new.init(walk.seed + 1)
    for name, delta in deltas.items():
        state = new.apply_delta(state, name, delta)
    if not all(table.log_removed for table in walk.coll.tables.values()):
        return state
    for call in (walk.forget, walk.step):
        call()
    for name, delta in walk.coll.export_delta(walk.state, marks)[0].items():
        state = new.apply_delta(state, name, delta, at=marks[name])
    return state


def from_safetensors(walk: Walk, new: jde.Tables) -> Any:
    folder = next(walk.folders)
    jde.export.safetensors(folder, walk.coll, walk.state, quiet=True)
    empty = new.init(walk.seed)
    return jde.import_.safetensors(folder, new, empty, quiet=True).state


def from_dynamicemb(walk: Walk, new: jde.Tables) -> Any:
    if not all(table.optimizer.kind for table in new.tables.values()):
        return from_safetensors(walk, new)  # it has no optax
    folder = next(walk.folders)
    jde.export.dynamicemb(folder, walk.coll, walk.state, quiet=True)
    empty = new.init(walk.seed)
    return jde.import_.dynamicemb(folder, new, empty, quiet=True).state


def from_stores(walk: Walk, new: jde.Tables) -> Any:
    tables = walk.coll.tables
    if any(tables[n].hash_seed != new.tables[n].hash_seed for n in tables):
        return from_safetensors(walk, new)
    stores = {name: jde.stores.Memory(table) for name, table in tables.items()}
    jde.export.to_store(walk.coll, walk.state, stores)
    return jde.import_.from_store(new, stores, new.init(walk.seed)).state


COPIES = [restored, with_deltas, from_safetensors, from_dynamicemb, from_stores]
CALLS = (
    ["step"] * 4 + ["store", "forget"] * 2 + ["copy"] * 6 + ["freeze", "publish"] * 2
)
CALLS += ["two_lookups", "look", "remove", "pin", "empty", "grow"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(400 if NIGHTLY else 8))
def test_a_walk(tmp_path, seed):
    Walk(seed, tmp_path).run(calls=20 if NIGHTLY else 10)
