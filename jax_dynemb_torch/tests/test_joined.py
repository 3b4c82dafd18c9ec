# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One table of several files: the rows that one file with all of them has."""

import numpy as np
import pytest
import torch

from builder import perfect_hash
from jax_dynemb_torch._joined import JoinedTables
from jax_dynemb_torch._snapshot import Snapshot
from jax_dynemb_torch._table import EXTRA_KEYS, Table
from known import DEFAULT, DIM, KEYS, NEW, look_up, mixed_ids, rows_of, table


def part(keys, hashed=True):
    """Some rows of "items", as a process writes them."""
    ordered = np.sort(keys)
    index = perfect_hash(ordered) if hashed else None
    if index is not None:
        ordered = ordered[np.argsort(_places(ordered, index))]
    extra = torch.tensor([[0.0] * DIM, [DEFAULT] * DIM])
    keys = torch.tensor([*ordered.tolist(), *EXTRA_KEYS])
    return Table(keys, torch.tensor(rows_of(ordered)), extra, index=index)


def _places(keys, index):
    """Where the hash puts each key."""
    extra = torch.zeros(2, DIM)
    ids = torch.tensor([*keys.tolist(), *EXTRA_KEYS])
    found = Table(ids, torch.zeros(len(keys), DIM), extra, index=index)
    return found.find(torch.from_numpy(keys)).numpy()


@pytest.fixture
def joined(device):
    """All rows in three parts, one of them empty, one without a hash."""
    parts = [part(KEYS[::2]), part(KEYS[:0], hashed=False), part(KEYS[1::2], False)]
    return Snapshot(JoinedTables(parts), None, None).to(device)


def test_rows_are_those_of_one_table(joined, device):
    ids = mixed_ids(500)
    found = joined.rows(torch.tensor(ids, device=device)).cpu()
    np.testing.assert_array_equal(found, look_up(table(), ids))


@pytest.mark.parametrize("weighted", [False, True])
def test_bags_are_those_of_one_table(joined, device, weighted):
    ids, draw = mixed_ids(60, 7), np.random.default_rng(0)
    weights = draw.random(ids.shape).astype(np.float32)
    offsets = torch.arange(0, ids.size + 1, 7, device=device)
    flat = torch.tensor(ids.ravel(), device=device)
    given = torch.tensor(weights.ravel(), device=device) if weighted else None
    found = joined.bags(flat, offsets, given).cpu()
    factors = weights[..., None] if weighted else 1.0
    want = (look_up(table(), ids) * factors).sum(axis=1)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_newer_rows_replace_those_of_any_part(joined, device):
    changed = np.concatenate([KEYS[:9], NEW])
    rows = {int(key): np.full(DIM, n, np.float32) for n, key in enumerate(changed)}
    new = joined.followed(
        torch.tensor(changed),
        torch.tensor(np.array(list(rows.values()))),
        torch.tensor(KEYS[20:29]),
    )
    want = {k: v for k, v in table().items() if k not in KEYS[20:29]} | rows
    ids = mixed_ids(500)
    found = new.rows(torch.tensor(ids, device=device)).cpu()
    np.testing.assert_array_equal(found, look_up(want, ids))
    old = joined.rows(torch.tensor(ids, device=device)).cpu()
    np.testing.assert_array_equal(old, look_up(table(), ids))


def test_other_widths_are_refused():
    narrow = Table(torch.tensor(EXTRA_KEYS), torch.zeros(0, 3), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="cannot be one"):
        JoinedTables([part(KEYS), narrow])
