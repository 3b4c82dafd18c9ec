# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains tables on a mesh above stores; run by test_prefetch_rows_of_processes.

    python prefetch_rows_of_processes.py PROCESSES STORE FOLDER

STORE is "none" for tables with room for all rows, "ssd", "broken" (the store of the
last process raises in the middle) or "shared" (one place for both). Says digests of the
rows of this process's devices and of those in its stores.
"""

import dataclasses
import functools
import hashlib
import json
import sys

import jax
import numpy as np
from jax.sharding import Mesh

import jax_dynemb as jde
from walks import rows_in, rows_of

BATCH, STEPS, IDS = 64, 40, 1500
PLAIN = [
    jde.TableConfig("wide", 4, 4 * IDS, optimizer=jde.optim.adam(0.05)),
    jde.TableConfig(
        "bags",
        3,
        4 * IDS,
        optimizer=jde.optim.rowwise_adagrad(0.05),
        key_dtype="int32",
        pooling="sum",
    ),
]


class Broken(jde.stores.Memory):
    """Fails with the rows of a late batch, on one process."""

    calls = 0

    def get(self, keys):
        """Reads rows, but once."""
        self.calls += 1
        if self.calls == 20 and jax.process_index() == 1:
            raise OSError("the disk is gone")
        return super().get(keys)


class Shared(jde.stores.Memory):
    """Says that it lies on a server."""

    place = ("server", 7)


def tables(store: str, folder: str) -> list[jde.TableConfig]:
    """The tables, above stores of this process or without."""
    sizes = {"host_rows": 512, "hbm_fraction": 1 / 8, "spill_rows": 512}
    if store == "none":
        return PLAIN
    kinds = {"broken": Broken, "shared": Shared}
    if store in kinds:
        tier = jde.tiers.external(lambda table: kinds[store](table), **sizes)
    else:
        tier = jde.tiers.ssd(folder, **sizes)
    return [dataclasses.replace(table, tier=tier) for table in PLAIN]


def batches(processes: int):
    """Each process's part of the same batches; bags are whole."""
    rng = np.random.default_rng(0)
    number, size = jax.process_index(), BATCH // processes
    for step in range(STEPS):
        wide = rng.integers(0, IDS, BATCH) * 2**33
        bags = jde.Jagged(rng.integers(0, IDS, 96), rng.integers(0, 3, BATCH))
        ids = {"wide": wide[number * size : (number + 1) * size], "bags": bags}
        # The prefetcher ends with the shortest of its processes.
        if step < STEPS - 2 * (processes > 1 and number == 0):
            yield ids, step


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def train(coll, state, ids):
    """One step whose gradients depend on the rows."""
    rows, residual, state = coll.lookup(state, ids)
    d_rows = jax.tree.map(lambda x: 0.3 * x + 1, dict(rows))
    return coll.apply_gradients(state, residual, d_rows)


def plain(coll) -> dict:
    """What training makes of tables with room for all ids."""
    state = coll.init(1)
    for ids, step in batches(1):
        if step == STEPS - 2:  # where the pair's prefetcher ends
            break
        ids["wide"] = jde.ids(ids["wide"])
        bags = ids["bags"]
        ids["bags"] = jde.Jagged(bags.values.astype(np.int32), bags.lengths)
        state = train(coll, state, ids)
    here = {t: of_text(rows_of(coll, state, t)) for t in coll.tables}
    return {"here": here, "steps": STEPS - 2}


def fed(coll) -> dict:
    """The same above stores."""
    state, steps, error = coll.init(1), 0, ""
    prefetcher = jde.tiers.prefetch_rows(coll, batches(jax.process_count()))
    try:
        while True:
            (ids, step), state = prefetcher.next(state)
            assert step == steps
            state, steps = train(coll, state, ids), steps + 1
            if step == 20:
                state, _ = prefetcher.fetch(state, {"wide": np.arange(64) * 2**33})
                gone = np.arange(4) + 4 * jax.process_index()
                state = prefetcher.erase(state, {"bags": IDS + gone})  # no such rows
            if step == 22:
                some = [{"wide": np.arange(64) * 2**33}] * 2
                with jde.tiers.prefetch_rows(
                    coll, some, stores=prefetcher.stores
                ) as second:
                    for _ in some:
                        beside, state = second.next(state)
                        _, found, state = coll.find(state, beside)
                state, absent = prefetcher.fetch(state, some[0])
                assert set(absent) == {"wide"}
            if step == 25:
                prefetcher.commit(state, f"step-{step}", step)
    except StopIteration:
        state = prefetcher.drain(state)
    except (OSError, RuntimeError, ValueError) as raised:
        error = str(raised)
    below = (
        {} if error else {n: of_text(rows_in(s)) for n, s in prefetcher.stores.items()}
    )
    here = {} if error else {t: of_text(rows_of(coll, state, t)) for t in coll.tables}
    stats = prefetcher.stats()
    if not error:
        prefetcher.close()
    return {"here": here, "below": below, "steps": steps, "error": error} | {
        "returned": stats["wide/returned"],
        "no_room": stats["wide/no_room"] + stats["bags/no_room"],
    }


def of_text(rows: dict[int, bytes]) -> dict[str, str]:
    """Digests of rows: a pipe has room for 64 kB, and who fills it waits."""
    digest = functools.partial(hashlib.blake2b, digest_size=4)
    return {f"{key:x}": digest(row).hexdigest() for key, row in rows.items()}


def main(processes: int, store: str, folder: str) -> None:
    """Trains and says what there is."""
    jax.config.update("jax_num_cpu_devices", 4 // processes)
    jde.distributed.ensure_initialized()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    coll = jde.Tables(tables(store, folder), mesh=mesh, axis="data")
    said = plain(coll) if store == "none" else fed(coll)
    print("RESULT " + json.dumps(said))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
