# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One process trains a table with a store below, another serves all of its rows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jax_dynemb as jde
from stores.conftest import redis_url  # noqa: F401 (fixture)

SEEN = 4000  # ids, as in train_and_publish
TRAINER = Path(__file__).parent / "train_and_publish.py"


def lookups(kind: str, place: str, name: str) -> list[jde.stores.StoreLookup]:
    """Readers of the cold and of the hot rows."""
    stores = (
        jde.stores.Log(Path(place) / part, read_only=True)
        if kind == "log"
        else jde.stores.Redis(place, name=f"{name}/{part}")
        for part in ("cold", "hot")
    )
    return [jde.stores.StoreLookup(store, max_age=0) for store in stores]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["log", "redis"])
def test_a_server_reads_every_row_after_the_commits(tmp_path, kind, request):
    """As docs/concepts/stores.md shows it."""
    place = str(tmp_path) if kind == "log" else request.getfixturevalue("redis_url")
    name = [] if kind == "log" else [str(tmp_path)]
    paths = os.pathsep.join(path for path in sys.path if path)
    trainer = subprocess.Popen(
        [sys.executable, str(TRAINER), kind, place, *name],
        env=os.environ | {"PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert trainer.stdin is not None and trainer.stdout is not None
    ids, readers = np.arange(SEEN), None
    with trainer:
        for _ in range(4):
            trainer.stdin.write("go\n")
            trainer.stdin.flush()
            told = json.loads(trainer.stdout.readline())  # both have been committed
            readers = readers or lookups(kind, place, str(tmp_path))
            cold, hot = readers
            rows, found = hot.find(ids)
            below, there = cold.find(np.where(found, -1, ids))
            rows, found = np.where(there[..., None], below, rows), found | there
            np.testing.assert_array_equal(found, told["found"])
            expected = np.array(told["rows"], np.float32) * found[:, None]
            np.testing.assert_array_equal(rows, expected)
        trainer.stdin.close()
    assert trainer.returncode == 0 and told["below"] > 500
