# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The same numbers, on a boundary of 2 MB, and nothing else of the process moves."""

import pytest
import torch

from jax_dynemb_torch._large_pages import in_large_pages


@pytest.mark.parametrize("count", [1 << 18, 300_001])
def test_the_numbers_are_the_same(count):
    numbers = torch.arange(count)
    placed = in_large_pages(numbers)
    assert torch.equal(placed, numbers)
    assert placed is numbers or placed.data_ptr() % (2 << 20) == 0
    # A program that saves the tensor saves no more than that.
    assert placed.untyped_storage().nbytes() == numbers.nbytes


@pytest.mark.parametrize("size", [0, 1000, 65 << 20])
def test_small_and_very_large_tensors_stay_where_they_are(size):
    numbers = torch.empty(size, dtype=torch.uint8)
    assert in_large_pages(numbers) is numbers
