# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a table into a store, one commit for each line that it reads.

    python train_into_store.py log PATH
    python train_into_store.py redis URL NAME

Prints the rows of the first ids after each commit, as JSON.
"""

import json
import sys

import numpy as np

import jax_dynemb as jde

TABLE = jde.TableConfig(
    name="cat", dim=4, capacity=2000, optimizer=jde.optim.adagrad(0.1)
)


def main(kind: str, place: str, name: str = "cat") -> None:
    """Trains until its input ends."""
    coll = jde.Tables([TABLE])
    if kind == "log":
        store = jde.stores.Log(place, TABLE, keep=1, segment_megabytes=1 / 16)
    else:
        store = jde.stores.Redis(place, TABLE, name=name)
    state, marks, rng = coll.init(3), None, np.random.default_rng(1)
    for turn, _ in enumerate(sys.stdin):
        ids = rng.integers(0, 1000, 500)
        rows, residual, state = coll.lookup(state, {"cat": jde.ids(ids)})
        state = coll.apply_gradients(state, residual, {"cat": rows["cat"] + 1})
        jde.export.to_store(coll, state, {"cat": store}, since=marks, step=turn)
        store.commit(f"turn-{turn}")
        marks = coll.get_score(state)
        first = np.arange(200)
        found_rows, found, state = coll.find(state, {"cat": jde.ids(first)})
        told = {
            "rows": np.asarray(found_rows["cat"]).tolist(),
            "found": np.asarray(found["cat"]).tolist(),
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
