# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Newer rows, in order, while other threads read."""

import gc
import json
import threading
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from devices import DEVICES
from jax_dynemb_torch import DynamicEmbedding, DynamicEmbeddingBag
from known import (
    CHANGED,
    DIM,
    GOLDEN,
    KEYS,
    NEW,
    REMOVED,
    UNCHECKED,
    look_up,
    mixed_ids,
    table,
    table_after_delta,
)

BASE = GOLDEN / "float32" / "items.safetensors"
DELTA = GOLDEN / "float32" / "items.delta-000001.safetensors"


def write(path, rows, removed=(), since=None, until=None, name="items"):
    """A delta of rows by key."""
    keys = sorted(rows)
    values = np.array([rows[key] for key in keys], np.float32).reshape(-1, DIM)
    tensors = {
        "keys": torch.tensor(keys, dtype=torch.int64),
        "rows": torch.tensor(values),
        "removed": torch.tensor(sorted(removed), dtype=torch.int64),
    }
    fields = {"format_version": 1, "kind": "delta", "table": name}
    fields |= {k: v for k, v in (("since", since), ("until", until)) if v is not None}
    save_file(tensors, path, {"jax_dynemb": json.dumps(fields)})
    return path


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_change_come_and_go(device, dtype):
    folder = GOLDEN if dtype == "float32" else UNCHECKED  # a delta is of one export
    module = DynamicEmbedding(folder / dtype / "items.safetensors").to(device)
    module.apply_delta(folder / "float32" / DELTA.name)
    ids = np.concatenate([KEYS, CHANGED, REMOVED, NEW, mixed_ids(100)])
    rows = module(torch.tensor(ids, device=device)).cpu()
    np.testing.assert_array_equal(rows, look_up(table_after_delta(), ids))
    assert module.overlay_rows == len(CHANGED) + len(REMOVED) + len(NEW)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_of_old_and_new_rows(device, mode):
    module = DynamicEmbeddingBag(BASE, mode=mode).to(device)
    module.apply_delta(DELTA)
    ids = np.concatenate([mixed_ids(50, 4), np.stack([CHANGED] * 5, 1)[:, :4]])
    weights = np.linspace(-1, 1, ids.size, dtype=np.float32).reshape(ids.shape)
    rows = look_up(table_after_delta(), ids) * weights[..., None]
    counts = np.maximum((ids != -1).sum(1), 1)[:, None] if mode == "mean" else 1
    moved = torch.tensor(ids, device=device), torch.tensor(weights, device=device)
    got = module(moved[0], per_sample_weights=moved[1]).cpu()
    np.testing.assert_allclose(got, rows.sum(1) / counts, rtol=1e-5, atol=1e-5)


numbers = st.integers(0, 60)
changes = st.dictionaries(numbers, st.integers(-8, 8), max_size=8)


@pytest.mark.parametrize("where", DEVICES)
@given(history=st.lists(st.tuples(changes, st.sets(numbers, max_size=5)), max_size=6))
def test_any_history(tmp_path_factory, where, history):
    folder, rows, spoken_of = tmp_path_factory.mktemp("d"), table(), set()
    module = DynamicEmbedding(BASE).to(where)
    for step, (changed, removed) in enumerate(history):
        new = {key: np.full(DIM, value) for key, value in changed.items()}
        removed = removed - changed.keys()
        path = write(folder / "delta", new, removed, since=step, until=step + 10)
        module.apply_delta(path)
        rows = {k: v for k, v in rows.items() if k not in removed} | new
        spoken_of |= changed.keys() | removed
    ids = np.concatenate([np.arange(-1, 62), KEYS])
    got = module(torch.tensor(ids, device=where)).cpu()
    np.testing.assert_array_equal(got, look_up(rows, ids))
    assert module.overlay_rows == len(spoken_of)


def test_deltas_of_a_directory_are_applied_in_order_and_once(tmp_path):
    base = UNCHECKED / "float32" / "items.safetensors"
    (tmp_path / "items.safetensors").write_bytes(base.read_bytes())
    module = DynamicEmbedding(tmp_path)
    known_until = module.snapshot.until
    for number in (1, 2):
        write(
            tmp_path / f"items.delta-{number:06d}.safetensors",
            {0: np.full(DIM, number)},
            since=known_until + number - 1,
            until=known_until + number,
        )
    module.apply_delta(tmp_path)
    assert module(torch.tensor(0)).tolist() == [2.0] * DIM
    snapshot = module.snapshot
    module.apply_delta(tmp_path)
    assert module.snapshot is snapshot
    assert DynamicEmbedding(tmp_path)(torch.tensor(0)).tolist() == [2.0] * DIM


def test_deltas_that_do_not_continue_the_table(tmp_path):
    module = DynamicEmbedding(BASE)
    until = module.snapshot.until
    gap = write(tmp_path / "gap", {1: np.ones(DIM)}, since=until + 1, until=until + 2)
    with pytest.raises(ValueError, match=f"but those since {until} are missing"):
        module.apply_delta(gap)
    other = write(tmp_path / "other", {1: np.ones(DIM)}, name="users")
    with pytest.raises(ValueError, match="is a delta of table 'users', not of 'items'"):
        module.apply_delta(other)
    with pytest.raises(ValueError, match=r"is a whole table, .* or replace\(\) one"):
        module.apply_delta(BASE)
    with pytest.raises(FileNotFoundError, match="give a delta of 'items'"):
        module.apply_delta(tmp_path / "nowhere")
    assert module.overlay_rows == 0


def test_readers_see_all_of_a_delta_or_nothing(device, tmp_path):
    """Each delta sets all rows of many ids to its number."""
    ids = torch.tensor(KEYS[:64], device=device)
    row = DynamicEmbedding(BASE).to(device)
    bag = DynamicEmbeddingBag(BASE, mode="sum").to(device)
    deltas = [
        write(
            tmp_path / f"{n}", {k: np.full(DIM, float(n)) for k in KEYS[:64].tolist()}
        )
        for n in range(1, 21)
    ]
    for module in (row, bag):
        module.apply_delta(deltas[0])
    done, problems, seen = threading.Event(), [], set()

    def read() -> None:
        last = 1.0
        stream = torch.cuda.Stream() if device == "cuda" else None
        while not done.is_set():
            with torch.cuda.stream(stream):  # nothing where there is none
                rows, sums = row(ids).cpu(), bag(ids.view(16, 4)).cpu()
            number = rows[0, 0].item()
            if not (rows == number).all() or number < last:
                problems.append(f"torn: {rows}")
            if not (sums == sums[0, 0]).all() or sums[0, 0] % 4:
                problems.append(f"torn bags: {sums}")
            last = number
            seen.add(number)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    snapshots = []
    for delta in deltas[1:]:
        snapshots.append(weakref.ref(row.snapshot.overlay))
        row.apply_delta(delta)
        bag.apply_delta(delta)
    done.set()
    for thread in threads:
        thread.join()
    assert not problems, problems[0]
    assert len(seen) > 3  # they really read meanwhile
    # Memory is bounded: an id is kept once, and old snapshots are gone.
    gc.collect()
    assert row.overlay_rows == 64
    assert all(reference() is None for reference in snapshots)


def test_another_export_takes_over(device, tmp_path):
    module = DynamicEmbedding(BASE).to(device)
    module.apply_delta(DELTA)
    module.replace(GOLDEN / "int8")
    assert module.overlay_rows == 0
    exact = look_up(table(), KEYS)
    rows = module(torch.tensor(KEYS, device=device)).cpu()
    np.testing.assert_allclose(rows, exact, atol=2 / 127)
    narrow = {
        "keys": torch.tensor([1]),
        "rows": torch.ones(1, DIM + 1),
    }
    fields = {"jax_dynemb": json.dumps({"format_version": 1})}
    save_file(narrow, tmp_path / "items.safetensors", fields)
    with pytest.raises(ValueError, match=f"rows of {DIM} columns"):
        module.replace(tmp_path)
