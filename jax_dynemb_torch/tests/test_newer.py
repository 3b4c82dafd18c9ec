# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Versions of newer rows, of which each stays what it was: a dict of that moment."""

import threading

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch

from jax_dynemb_torch import _newer
from jax_dynemb_torch._newer import Newer

DIM = 3
LIMITS = [-(2**63), 2**63 - 1, 0, 1, -3]
KEYS = st.integers(0, 40) | st.sampled_from(LIMITS)


def same(newer, rows, ids):
    places = newer.find(torch.tensor(ids))
    want = np.array([rows.get(i, np.zeros(DIM)) for i in ids], np.float32)
    np.testing.assert_array_equal(newer.gather(places), want.reshape(-1, DIM))
    assert newer.holds(places).tolist() == [i in rows for i in ids]
    assert newer.size == len(rows)


@hypothesis.given(st.lists(st.sets(KEYS), max_size=12))
def test_each_version_is_a_dict(segments):
    newer, rows = Newer.empty(DIM), {}
    versions = [(newer, rows)]
    for step, keys in enumerate(segments, 1):
        rows = rows | {key: np.full(DIM, step, np.float32) for key in keys}
        new = torch.full((len(keys), DIM), float(step))
        newer = newer.with_rows(torch.tensor(list(keys), dtype=torch.int64), new)
        versions.append((newer, rows))
    ids = [*range(42), *LIMITS, -1, -2]
    for version, of_then in versions:
        same(version, of_then, ids)


def test_keys_that_fall_into_one_bucket(monkeypatch):
    monkeypatch.setattr(_newer._Arrays, "_buckets_of", lambda self, ids: ids % 2)
    with pytest.raises(MemoryError):  # no table of any size would have room
        monkeypatch.setattr(_newer, "_WIDTH", 4)
        make = _newer._Arrays.__init__

        def bounded(self, dim, room, buckets):
            if buckets > 1024:
                raise MemoryError
            make(self, dim, room, buckets)

        monkeypatch.setattr(_newer._Arrays, "__init__", bounded)
        Newer.empty(DIM).with_rows(torch.arange(64) * 2, torch.zeros(64, DIM))


def test_full_buckets_make_more_of_them():
    rows, newer = {}, Newer.empty(DIM)
    draw = np.random.default_rng(0)
    for step in range(60):
        keys = np.unique(draw.integers(-(2**62), 2**62, 300))
        new = draw.normal(size=(len(keys), DIM)).astype(np.float32)
        newer = newer.with_rows(torch.from_numpy(keys), torch.from_numpy(new))
        rows |= dict(zip(keys.tolist(), new, strict=True))
        if step % 20 == 0:
            same(newer, rows, [*rows, 5])
    same(newer, rows, [*rows, 5])


def test_bags_are_sums(device):
    if device != "cpu":
        pytest.skip("newer rows of a GPU are a table")
    newer = Newer.empty(DIM).with_rows(torch.tensor([4, 5]), torch.eye(2, DIM))
    places = newer.find(torch.tensor([4, 5, 6, 4]))
    found = newer.bags(places, torch.tensor([0, 3, 3, 4]), None)
    assert found.tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 0]]


def test_a_version_stays_while_another_thread_appends():
    keys = torch.arange(500)
    newest = [Newer.empty(1).with_rows(keys, torch.zeros(500, 1))]
    stop, torn = threading.Event(), []

    def look():
        while not stop.is_set():
            version = newest[-1]
            for _ in range(3):
                found = version.gather(version.find(keys))
                if (
                    not (found == found[0]).all()
                    or not version.holds(version.find(keys)).all()
                ):
                    torn.append(found)

    readers = [threading.Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()
    for step in range(1, 300):
        rows = torch.full((500, 1), float(step))
        newest.append(newest[-1].with_rows(keys, rows))
    stop.set()
    for reader in readers:
        reader.join()
    assert not torn
    for step in (0, 7, 150, 299):
        assert (newest[step].gather(newest[step].find(keys)) == step).all()
