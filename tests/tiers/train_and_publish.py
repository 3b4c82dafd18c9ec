# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a table with a store below it, and publishes it for each line that it reads.

    python train_and_publish.py log FOLDER
    python train_and_publish.py redis URL NAME

Prints, after both commits, the rows that a table with room for every row has, as JSON.
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np

import jax_dynemb as jde
from walks import BELOW, PLAIN, Walk

SEEN, STEPS = 4000, 20


def opened(kind: str, place: str, name: str) -> dict[str, jde.stores.Store]:
    """The store below the table, and one for the rows that are in the table."""
    if kind == "log":
        return {
            part: jde.stores.Log(Path(place) / part, PLAIN) for part in ("cold", "hot")
        }
    return {
        part: jde.stores.Redis(place, PLAIN, name=f"{name}/{part}")
        for part in ("cold", "hot")
    }


def main(kind: str, place: str, name: str = "") -> None:
    """Trains until its input ends."""
    stores, rng = opened(kind, place, name), np.random.default_rng(1)
    batches = [rng.integers(0, SEEN, 40) for _ in range(STEPS * 10)]
    walk, marks = Walk(stores["cold"], BELOW), None
    find = jax.jit(lambda s, ids: walk.plain.find(s, {"cat": ids})[:2])
    with walk.prefetcher(batches) as prefetcher:
        for turn, _ in enumerate(sys.stdin):
            walk.run(prefetcher, batches[turn * STEPS : (turn + 1) * STEPS])
            prefetcher.commit(walk.state, f"turn-{turn}", turn)
            jde.export.to_store(
                walk.coll,
                walk.state,
                {"cat": stores["hot"]},
                since=marks,
                mirror=True,
                step=turn,
            )
            stores["hot"].commit(f"turn-{turn}")
            marks = walk.coll.get_score(walk.state)
            rows, found = find(walk.whole, jde.ids(np.arange(SEEN)))
            told = {
                "rows": np.asarray(rows["cat"]).tolist(),
                "found": np.asarray(found["cat"]).tolist(),
                "below": len(stores["cold"].keys()),
            }
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
