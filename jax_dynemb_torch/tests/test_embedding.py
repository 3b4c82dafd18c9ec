# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""DynamicEmbedding beside a dict."""

import functools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from devices import DEVICES
from jax_dynemb_torch import DynamicEmbedding
from known import (
    CHANGED,
    GOLDEN,
    KEYS,
    REMOVED,
    UNKNOWN,
    look_up,
    mixed_ids,
    table,
    table_after_delta,
)

BASE = GOLDEN / "float32" / "items.safetensors"  # the file alone: without its delta


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 4), (2, 3, 5), (0,), (4, 0)])
def test_every_shape(device, shape):
    ids = mixed_ids(*shape)
    rows = DynamicEmbedding(BASE).to(device)(torch.tensor(ids, device=device))
    assert rows.dtype == torch.float32 and rows.device.type == device
    np.testing.assert_array_equal(rows.cpu(), look_up(table(), ids))


def test_every_key_unknown_ids_and_padding(device):
    ids = np.concatenate([KEYS, UNKNOWN, [-1, -2]])
    rows = DynamicEmbedding(BASE).to(device)(torch.tensor(ids, device=device))
    np.testing.assert_array_equal(rows.cpu(), look_up(table(), ids))


@pytest.mark.parametrize("where", DEVICES)
@given(ids=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50))
def test_any_int64(where, ids):
    ids = np.array(ids, np.int64)
    rows = _module(where)(torch.tensor(ids, device=where))
    np.testing.assert_array_equal(rows.cpu(), look_up(table(), ids))


def test_a_directory_is_loaded_with_its_deltas(device):
    ids = np.concatenate([CHANGED, REMOVED, mixed_ids(100)])
    module = DynamicEmbedding(GOLDEN / "float32", "items").to(device)
    rows = module(torch.tensor(ids, device=device)).cpu()
    np.testing.assert_array_equal(rows, look_up(table_after_delta(), ids))


def test_narrow_integers_are_widened(device):
    ids = torch.arange(50, dtype=torch.int32)
    rows = DynamicEmbedding(BASE).to(device)(ids.to(device)).cpu()
    np.testing.assert_array_equal(rows, look_up(table(), ids.numpy()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bool])
def test_other_types_are_refused(dtype):
    with pytest.raises(TypeError, match="keep them as torch.int64"):
        DynamicEmbedding(BASE)(torch.ones(3, dtype=dtype))


def test_a_module_among_others():
    """No parameters, nothing in the state dict, nothing to differentiate."""
    module = DynamicEmbedding(BASE)
    assert not list(module.parameters()) and not module.state_dict()
    assert not module(torch.tensor([1])).requires_grad


@functools.cache
def _module(where: str) -> DynamicEmbedding:
    return DynamicEmbedding(BASE).to(where)
