# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tensor-train tables against the multiplied-out table, in NumPy and float64."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jax_dynemb_torch import TTEmbeddingBag

# MurmurHash3's multipliers, those of a table without a secret.
FIRST, SECOND = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
MASK = 2**64 - 1


def arrays_of(rows, columns, ranks, *, count=None, mean=False, hashed=False, seed=0):
    draw = np.random.default_rng(seed)
    ends = zip(rows, (1, *ranks), columns, (*ranks, 1), strict=True)
    cores = [draw.normal(size=shape).astype(np.float32) for shape in ends]
    factors = np.array([FIRST, SECOND] if hashed else [], np.uint64).view(np.int64)
    return {f"core_{t}": core for t, core in enumerate(cores)} | {
        "num_embeddings": np.array(count or math.prod(rows)),
        "mean": np.array(mean),
        "hash_factors": factors,
    }


def table_of(arrays) -> np.ndarray:
    """float64[prod(p), dim], by the definition: one row after the other."""
    cores = [arrays[name].astype(np.float64) for name in arrays if "core_" in name]
    sizes = [len(core) for core in cores]
    table = []
    for place in np.ndindex(*sizes):
        product = np.ones((1, 1))
        for core, digit in zip(cores, place, strict=True):
            columns = [product @ core[digit, :, j] for j in range(core.shape[2])]
            product = np.stack(columns, 1).reshape(-1, core.shape[3])
        table.append(product[:, 0])
    return np.array(table)


def assert_close(got: torch.Tensor, expected: np.ndarray) -> None:
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(got.detach().cpu(), expected, rtol=0, atol=2e-6 * scale)


SHAPES = [
    ((3, 5), (2, 2), (3,)),
    ((3, 4, 2), (1, 3, 2), (4, 2)),
    ((2, 3, 1, 2), (2, 1, 1, 5), (1, 1, 1)),
    ((2, 2, 3, 2, 2), (2, 1, 3, 1, 2), (2, 3, 4, 2)),
]


@pytest.mark.parametrize("shapes", SHAPES)
def test_rows_are_those_of_the_table(device, shapes):
    arrays = arrays_of(*shapes)
    table = table_of(arrays)
    module = TTEmbeddingBag(arrays).to(device)
    ids = torch.arange(len(table), device=device)
    assert module.dim == table.shape[1]
    assert_close(module.rows(ids), table)
    assert_close(module.rows(ids.view(1, -1, 1)), table[None, :, None])


def test_padding_and_ids_outside_are_zeros(device):
    module = TTEmbeddingBag(arrays_of((3, 4), (2, 2), (3,), count=10)).to(device)
    ids = torch.tensor([-1, 10, 11, 2**40, -5, 2**63 - 1], device=device)
    assert (module.rows(ids) == 0).all()
    assert (module.rows(torch.tensor([9], device=device)) != 0).all()


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_bags(device, mode, weighted):
    arrays = arrays_of((3, 4), (2, 2), (3,), count=10, mean=mode == "mean")
    table, module = table_of(arrays), TTEmbeddingBag(arrays).to(device)
    bags = np.array([[1, 2, 2], [9, -1, -1], [-1, -1, -1], [10, 3, -1]])
    weights = np.random.default_rng(1).normal(size=bags.shape).astype(np.float32)
    weights = weights if weighted else np.ones_like(weights)
    inside = (bags >= 0) & (bags < 10)
    rows = np.where(inside[..., None], table[np.where(inside, bags, 0)], 0)
    expected = (rows * weights[..., None]).sum(1)
    if mode == "mean":
        expected /= np.maximum((bags >= 0).sum(1), 1)[:, None]
    given_weights = torch.tensor(weights, device=device) if weighted else None
    ids = torch.tensor(bags, device=device)
    assert_close(module(ids, None, given_weights), expected)
    flat = given_weights.view(-1) if weighted else None
    offsets = torch.tensor([0, 3, 6, 9], device=device)
    assert_close(module(ids.view(-1), offsets, flat), expected)


def test_offsets_that_include_the_last(device):
    arrays = arrays_of((3, 4), (2, 2), (3,))
    table = table_of(arrays)
    module = TTEmbeddingBag(arrays, include_last_offset=True).to(device)
    ids = torch.tensor([3, 4, 5, 6, 7], device=device)
    got = module(ids, torch.tensor([0, 0, 3, 4], device=device))
    assert_close(got, np.stack([0 * table[0], table[3:6].sum(0), table[6]]))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_hashed_ids(ids):
    arrays = arrays_of((7, 9), (2, 1), (2,), hashed=True)
    table = table_of(arrays)
    got = TTEmbeddingBag(arrays).rows(torch.tensor(ids))
    expected = [np.zeros(2) if i == -1 else table[row_number(i, 63)] for i in ids]
    assert_close(got, np.array(expected))


def row_number(key: int, rows: int) -> int:
    """MurmurHash3's finaliser, in integers that do not overflow."""
    word = key & MASK
    for multiplier in (FIRST, SECOND):
        word = (word ^ word >> 33) * multiplier & MASK
    return (word ^ word >> 33) * rows >> 64


def test_many_rows_go_through_in_chunks():
    arrays = arrays_of((30, 40, 20), (1, 2, 1), (2, 2))
    ids = torch.randint(0, 24000, (20000,), generator=torch.Generator().manual_seed(0))
    cores = [arrays[f"core_{t}"].astype(np.float64) for t in range(3)]
    table = np.einsum("aijr,brks,cslx->abcijklx", *cores).reshape(24000, 2)
    assert_close(TTEmbeddingBag(arrays).rows(ids), table[ids.numpy()])
    assert TTEmbeddingBag(arrays).rows(ids[:0]).shape == (0, 2)


def test_cores_train():
    arrays = arrays_of((3, 4), (2, 2), (3,))
    module = TTEmbeddingBag(arrays)
    ids = torch.tensor([[1, 2], [2, 11]])
    module(ids).square().sum().backward()
    cores = [torch.tensor(arrays[f"core_{t}"], dtype=torch.float64) for t in range(2)]
    for core in cores:
        core.requires_grad_(True)
    table = torch.einsum("aijr,brkx->abijkx", *cores).reshape(12, 4)
    table[ids].sum(1).square().sum().backward()
    for parameter, core in zip(module.cores, cores, strict=True):
        assert_close(parameter.grad, core.grad.numpy())


def test_state_dict_and_file(tmp_path):
    arrays = arrays_of((3, 4), (2, 2), (3,), mean=True)
    np.savez(tmp_path / "item.npz", **arrays)
    module = TTEmbeddingBag.load(tmp_path / "item.npz")
    assert module.mode == "mean"
    other = TTEmbeddingBag(arrays_of((3, 4), (2, 2), (3,), seed=1))
    other.load_state_dict(module.state_dict())
    ids = torch.arange(12)
    assert torch.equal(other.rows(ids), module.rows(ids))


# torch warns about its own insides, from wherever they are called.
@pytest.mark.filterwarnings("ignore")
def test_torch_export_with_a_dynamic_batch():
    module = TTEmbeddingBag(arrays_of((3, 4), (2, 2), (3,), hashed=True))
    ids = torch.arange(12).view(4, 3)
    shapes = ({0: torch.export.Dim("batch", min=2, max=512)},)
    program = torch.export.export(module, (ids,), dynamic_shapes=shapes).module()
    more = torch.arange(90).view(30, 3)
    torch.testing.assert_close(program(more), module(more))


def test_mistakes():
    arrays = arrays_of((3, 4), (2, 2), (3,))
    with pytest.raises(ValueError, match=r"jde\.tt\.to_torch"):
        TTEmbeddingBag({k: v for k, v in arrays.items() if k != "mean"})
    with pytest.raises(ValueError, match="do not meet"):
        TTEmbeddingBag(arrays | {"core_1": arrays["core_0"]})
    with pytest.raises(ValueError, match="mode"):
        TTEmbeddingBag(arrays, mode="max")
    module = TTEmbeddingBag(arrays)
    with pytest.raises(ValueError, match="unsqueeze"):
        module(torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="one weight an id"):
        module(torch.tensor([[1, 2]]), None, torch.ones(2))
    with pytest.raises(TypeError, match="integers"):
        module(torch.tensor([[1.0]]))
