# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One process trains into a store, another looks ids up in it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jax_dynemb as jde
from stores.conftest import random_rows, table_config

TRAINER = Path(__file__).parent / "train_into_store.py"


@pytest.mark.parametrize("kind", ["log", pytest.param("redis", marks=pytest.mark.slow)])
def test_a_lookup_reads_what_the_trainer_has_committed(tmp_path, kind, request):
    url = request.getfixturevalue("redis_url") if kind == "redis" else ""
    place = [str(tmp_path)] if kind == "log" else [url, f"{tmp_path}"]
    paths = os.pathsep.join(path for path in sys.path if path)
    trainer = subprocess.Popen(
        [sys.executable, str(TRAINER), kind, *place],
        env=os.environ | {"PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert trainer.stdin is not None and trainer.stdout is not None
    lookup, before = None, None
    with trainer:
        for _ in range(4):
            trainer.stdin.write("go\n")
            trainer.stdin.flush()
            told = json.loads(trainer.stdout.readline())  # it has committed by now
            if lookup is None:
                store = (
                    jde.stores.Log(tmp_path, read_only=True)
                    if kind == "log"
                    else jde.stores.Redis(url, name=f"{tmp_path}")
                )
                lookup = jde.stores.StoreLookup(store, max_age=0)
            rows, found = lookup.find(np.arange(200))
            np.testing.assert_array_equal(found, told["found"])
            expected = np.array(told["rows"], np.float32) * found[:, None]
            np.testing.assert_array_equal(rows, expected)
            assert before is None or not np.array_equal(rows, before)
            before = rows
        trainer.stdin.close()
    assert trainer.returncode == 0


def filled(count: int) -> tuple[jde.stores.Memory, np.ndarray]:
    config = table_config()
    store, rng = jde.stores.Memory(config), np.random.default_rng(0)
    rows = rng.random((count, config.dim), np.float32)
    packed = random_rows(rng, count, store)
    packed[:, 8 : 8 + 4 * config.dim] = rows.view(np.uint8)
    store.put(np.arange(count), packed)
    return store, rows


def test_ids_of_any_shape_padding_and_unknown_ones():
    store, rows = filled(10)
    lookup = jde.stores.StoreLookup(store, default=0.5)
    found_rows, found = lookup.find(np.array([[3, -1], [3, 77]]))
    assert found_rows.dtype == np.float32 and found_rows.shape == (2, 2, 5)
    np.testing.assert_array_equal(found, [[True, False], [True, False]])
    np.testing.assert_array_equal(found_rows[0, 0], rows[3])
    np.testing.assert_array_equal(found_rows[0, 1], 0)
    np.testing.assert_array_equal(found_rows[1, 1], 0.5)
    assert lookup(np.empty((0, 3), np.int64)).shape == (0, 3, 5)
    assert not lookup.refresh()
    with pytest.raises(ValueError, match="-1 to -4"):
        lookup(np.array([-2]))
    with pytest.raises(TypeError, match="ids must be integers"):
        lookup(np.array(["a"]))


def test_pooled_bags_equal_loops():
    store, rows = filled(50)
    lookup, rng = jde.stores.StoreLookup(store), np.random.default_rng(1)
    lengths = np.array([0, 3, 1, 0, 7, 2])
    ids = rng.integers(-1, 50, lengths.sum())
    weights = rng.random(len(ids)).astype(np.float32)
    for pooling in ("sum", "mean"):
        for factors in (None, weights):
            result = lookup.pooled(ids, lengths, pooling=pooling, weights=factors)
            at = 0
            for bag, size in enumerate(lengths):
                total, count = np.zeros(5), 0
                for i in range(at, at + size):
                    if ids[i] >= 0:
                        factor = 1 if factors is None else factors[i]
                        total, count = total + rows[ids[i]] * factor, count + 1
                if pooling == "mean" and count:
                    total = total / count
                np.testing.assert_allclose(result[bag], total, rtol=1e-6, atol=1e-6)
                at += size
    with pytest.raises(ValueError, match="the lengths sum to 14"):
        lookup.pooled(ids, lengths + np.eye(6, dtype=int)[0])
    with pytest.raises(ValueError, match="pooling must be"):
        lookup.pooled(ids, lengths, pooling="max")
