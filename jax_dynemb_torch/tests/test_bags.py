# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""DynamicEmbeddingBag beside torch.nn.EmbeddingBag on ids that were numbered before."""

import functools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from devices import DEVICES
from jax_dynemb_torch import DynamicEmbeddingBag
from known import DIM, GOLDEN, look_up, mixed_ids, table

BASE = GOLDEN / "float32" / "items.safetensors"
EXACT = {"rtol": 1e-6, "atol": 1e-6}  # other orders of the same sum


@functools.cache
def module(
    mode: str, dtype: str = "float32", where: str = "cpu", **options
) -> DynamicEmbeddingBag:
    path = GOLDEN / dtype / "items.safetensors"
    return DynamicEmbeddingBag(path, mode=mode, **options).to(where)


def numbered(ids: np.ndarray, mode: str) -> tuple[torch.nn.EmbeddingBag, torch.Tensor]:
    """A bag with one row for each distinct id; the last one is padding."""
    distinct, number = np.unique(ids, return_inverse=True)
    rows = np.concatenate([look_up(table(), distinct), np.zeros((1, DIM))])
    number = np.where(ids == -1, len(distinct), number.reshape(ids.shape))
    bag = torch.nn.EmbeddingBag.from_pretrained(
        torch.tensor(rows, dtype=torch.float32), mode=mode, padding_idx=len(distinct)
    )
    return bag, torch.tensor(number)


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (300, 1), (64, 7), (0, 4), (5, 0)])
def test_padded_bags(device, mode, shape):
    ids = mixed_ids(*shape)
    got = DynamicEmbeddingBag(BASE, mode=mode).to(device)(torch.tensor(ids).to(device))
    if ids.size == 0:
        assert got.shape == (shape[0], DIM) and not got.any()
        return
    bag, number = numbered(ids, mode)
    np.testing.assert_allclose(got.cpu(), bag(number), **EXACT)


bags = st.lists(st.lists(st.integers(-3, 45), max_size=5), max_size=8)


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean"])
@given(bags=bags)
def test_jagged_bags(where, last, mode, bags):
    flat = np.array([i for bag in bags for i in bag], np.int64)
    ends = np.cumsum([0] + [len(bag) for bag in bags])
    offsets = torch.tensor(ends if last else ends[:-1], device=where)
    bag = module(mode, where=where, include_last_offset=last)
    got = bag(torch.tensor(flat, device=where), offsets).cpu()
    if flat.size == 0:
        assert got.shape == (len(bags), DIM) and not got.any()
        return
    bag, number = numbered(flat, mode)
    expected = bag(number, torch.tensor(ends[:-1])) if bags else torch.zeros(0, DIM)
    np.testing.assert_allclose(got, expected, **EXACT)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_weights(device, dtype):
    ids, rng = mixed_ids(40, 6), np.random.default_rng(1)
    weights = rng.normal(size=ids.shape).astype(np.float32)
    rows = look_up(table(), ids).astype(np.float64)
    expected = (rows * weights[..., None]).sum(1)
    given, moved = torch.tensor(weights).to(device), torch.tensor(ids).to(device)
    got = module("sum", dtype, device)(moved, per_sample_weights=given)
    tolerance = 6 * 4 / 127 if dtype == "int8" else 1e-5
    np.testing.assert_allclose(got.cpu(), expected, atol=tolerance, rtol=1e-5)
    # A mean divides by the ids that are there, whatever their weights.
    counts = np.maximum((ids != -1).sum(1), 1)[:, None]
    got = module("mean", dtype, device)(moved, per_sample_weights=given).cpu()
    np.testing.assert_allclose(got, expected / counts, atol=tolerance, rtol=1e-5)


def test_the_mode_is_the_tables_unless_it_is_given():
    assert DynamicEmbeddingBag(BASE).mode == "mean"
    assert DynamicEmbeddingBag(BASE, mode="sum").mode == "sum"
    assert DynamicEmbeddingBag(GOLDEN / "float32", "cities").mode == "sum"
    with pytest.raises(ValueError, match="must be 'sum' or 'mean', not 'max'"):
        DynamicEmbeddingBag(BASE, mode="max")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            (torch.zeros(3, dtype=torch.long),),
            "give .bags, length., or .n. and offsets",
        ),
        ((torch.zeros(2, 3, 4, dtype=torch.long),), r"ids have shape \(2, 3, 4\)"),
        (
            (torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, dtype=torch.long)),
            "leave out offsets",
        ),
        (
            (torch.zeros(2, 3, dtype=torch.long), None, torch.ones(6)),
            "give one weight an id",
        ),
    ],
)
def test_shapes_that_do_not_fit(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        module("sum")(*arguments)


def test_gradients_of_weights_after_inference(device):
    """What a call without gradients keeps for the next one serves them too."""
    ids = torch.tensor(mixed_ids(5, 11))
    bag, moved = module("sum", where=device), ids.to(device)
    with torch.inference_mode():
        bag(moved)
    weights = torch.ones(ids.shape, requires_grad=True, device=device)
    bag(moved, per_sample_weights=weights).sum().backward()
    assert weights.grad is not None
    expected = look_up(table(), ids.numpy()).sum(axis=-1)
    np.testing.assert_allclose(weights.grad.cpu(), expected, rtol=1e-5, atol=1e-6)
