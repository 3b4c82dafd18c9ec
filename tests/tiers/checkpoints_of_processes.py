# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains, saves and resumes on four devices; run by test_checkpoints_of_processes.

    python checkpoints_of_processes.py PROCESSES TIER FOLDER WORK

TIER is one of ``TIERS``. WORK is "whole" (trains to the end, and says the rows of both
steps), "killed" (saves, trains on and dies), "resumed" (restores and trains to the end)
or "moved" (restores into each of ``MOVES``). Rows are digests: of this process's
devices, and of its stores. "whole" and "killed" write to FOLDER/TIER, and the others
read from there.
"""

import dataclasses
import functools
import json
import os
import signal
import sys

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jax_dynemb as jde
from tiers.prefetch_rows_of_processes import of_text
from walks import rows_in, rows_of

BATCH, IDS, SAVED, LAST = 60, 1500, 24, 40
adam, adagrad = jde.optim.adam(0.05), jde.optim.rowwise_adagrad(0.05)
WIDE = jde.TableConfig("wide", 4, 4 * IDS, optimizer=adam)  # 47 buckets, so uneven
PLAIN = [WIDE, jde.TableConfig("even", 3, 64 * 128, optimizer=adagrad)]
APART = [
    jde.TableConfig(name, 3, 64 * 128, optimizer=adagrad, sharding="table_wise")
    for name in ("left", "right")
]
SIZES = {"hbm_fraction": 1 / 4, "spill_rows": 512}
TIERS = {
    "none": None,
    "host": jde.tiers.host(hbm_fraction=1 / 8, spill_rows=512),
    "half": jde.tiers.host(hbm_fraction=1 / 2, spill_rows=512),
    "ssd": None,  # of a folder
}
# Of each tier others, and the capacity of a table or its rows above a store.
MOVES = {
    "host": [("none", WIDE.capacity), ("half", WIDE.capacity), ("host", 12_000)],
    "ssd": [("none", WIDE.capacity), ("ssd", 1024)],  # two processes refuse each
}
MOVES["none"] = MOVES["host"]


def tables(
    tier: str, folder: str, size: int | None = None, *, apart: bool = True
) -> list[jde.TableConfig]:
    """The tables with a tier; those of a store have few rows."""
    if tier == "ssd":
        below = jde.tiers.ssd(f"{folder}/logs", host_rows=size or 512, **SIZES)
        return [dataclasses.replace(table, tier=below) for table in PLAIN]
    wide = dataclasses.replace(WIDE, capacity=size or WIDE.capacity)
    every = [wide, *PLAIN[1:], *(APART if apart else [])]
    return [dataclasses.replace(table, tier=TIERS[tier]) for table in every]


def batches(first: int, last: int):
    """Each process's part of the same batches."""
    size = BATCH // jax.process_count()
    mine = slice(size * jax.process_index(), size * (jax.process_index() + 1))
    for step in range(first, last):
        rng = np.random.default_rng(step)
        names = [config.name for config in PLAIN + APART]
        yield {name: rng.integers(0, IDS, BATCH)[mine] * 2**33 for name in names}


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def train(coll, state, ids):
    """One step whose gradients depend on the rows."""
    rows, residual, state = coll.lookup(state, ids)
    d_rows = jax.tree.map(lambda x: 0.3 * x + 1, dict(rows))
    return coll.apply_gradients(state, residual, d_rows)


class Run:
    """A job's tables with their state, and the stores below them."""

    def __init__(self, tier: str, folder: str):
        mesh = Mesh(np.array(jax.devices()), ("data",))
        self.split = NamedSharding(mesh, PartitionSpec("data"))
        self.coll = jde.Tables(tables(tier, folder), mesh=mesh, axis="data")
        self.path, self.stores = f"{folder}/{tier}", {}
        if tier == "ssd":
            self.stores = jde.tiers.open_stores(self.coll)
        self.state = self.coll.init(1)

    def steps(self, first: int, last: int, save: int | None = None) -> None:
        """Trains, and saves before a step."""
        if not self.stores:
            for step, ids in enumerate(self._named(first, last), first):
                if step == save:
                    self._save(step)
                ids = {n: jde.ids(x, sharding=self.split) for n, x in ids.items()}
                self.state = train(self.coll, self.state, ids)
            return
        fed = self._named(first, last)
        with jde.tiers.prefetch_rows(self.coll, fed, stores=self.stores) as prefetcher:
            for step in range(first, last):
                if step == save:
                    self._save(step, prefetcher=prefetcher)
                ids, self.state = prefetcher.next(self.state)
                self.state = train(self.coll, self.state, ids)
            self.state = prefetcher.drain(self.state)

    def _named(self, first: int, last: int):
        for ids in batches(first, last):
            yield {name: ids[name] for name in self.coll.tables}

    def _save(self, step: int, **prefetcher) -> None:
        jde.checkpoint.save(self.path, step, self.state, tables=self.coll, **prefetcher)

    def restore(self) -> None:
        """Goes back to the checkpoint."""
        stores = {"stores": self.stores} if self.stores else {}
        back = jde.checkpoint.restore(
            self.path, self.coll.init(9), tables=self.coll, **stores
        )
        came = "rows came from the stores of 2 processes"
        assert back.step == SAVED and all(came in n for n in back.notes), back.notes
        self.state = back.tree

    def rows(self) -> dict[str, dict[str, str]]:
        """Digests of the rows that this process has, by table."""
        below = {name: of_text(rows_in(s)) for name, s in self.stores.items()}
        here = {t: of_text(rows_of(self.coll, self.state, t)) for t in self.coll.tables}
        return {"here": here, "below": below}


def logs(folder: str) -> dict[str, list[jde.stores.Log]]:
    """The logs of a job of two processes."""
    parts = [f"{folder}/logs/{process}-of-2" for process in range(2)]
    return {
        table.name: [jde.stores.Log(f"{p}/{table.name}", read_only=True) for p in parts]
        for table in PLAIN
    }


def moved(tier: str, folder: str) -> list:
    """Restores the checkpoint into other tables."""
    said, options = [], {}
    mesh = Mesh(np.array(jax.devices()), ("data",))
    if tier == "ssd":
        configs = tables(tier, folder)
        coll = jde.Tables(configs, mesh=mesh, axis="data")
        options["stores"] = jde.tiers.open_stores(coll)
    if tier == "ssd" and jax.process_count() == 1:
        options["former_stores"] = logs(folder)
    for other, size in MOVES[tier]:
        configs = tables(other, folder, size, apart=tier != "ssd")
        coll = jde.Tables(configs, mesh=mesh, axis="data")
        if "former_stores" in options:
            options["stores"] = {t.name: jde.stores.Memory(t) for t in configs}
        try:
            back = jde.checkpoint.restore(
                f"{folder}/{tier}", coll.init(5), tables=coll, **options
            )
        except (NotImplementedError, ValueError, OSError) as error:
            said.append(str(error))
        else:
            rows = {t: of_text(rows_of(coll, back.tree, t)) for t in coll.tables}
            below = {} if other == "none" else options.get("stores", {})
            said.append(
                {
                    "here": rows,
                    "below": {n: of_text(rows_in(s)) for n, s in below.items()},
                }
            )
    return said


def main(processes: int, tier: str, folder: str, work: str) -> None:
    """Does the work and says what there is."""
    jax.config.update("jax_num_cpu_devices", 4 // processes)
    jde.distributed.ensure_initialized()
    if work == "moved":
        print("RESULT " + json.dumps({"moved": moved(tier, folder)}))
        return
    run, said = Run(tier, folder), {}
    if work == "whole":
        run.steps(0, SAVED)
        said["saved"] = run.rows()
        run.steps(SAVED, LAST, SAVED)
    elif work == "killed":
        run.steps(0, SAVED + 3, SAVED)
        jde.checkpoint.wait()
        # JAX may abort a process that sees the other one die: both have saved by then.
        multihost_utils.sync_global_devices("saved")
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        run.restore()
        said["saved"] = run.rows()
        run.steps(SAVED, LAST)
    jde.checkpoint.wait()
    said["last"] = run.rows()
    print("RESULT " + json.dumps(said))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
