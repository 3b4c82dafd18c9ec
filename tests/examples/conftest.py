# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Examples and benchmarks are scripts: their folders are no package of the library."""

import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("examples", "examples/recipes", "benchmarks")
sys.path[:0] = [str(ROOT / folder) for folder in FOLDERS]


@pytest.fixture(scope="module", autouse=True)
def users_promotion() -> Iterator[None]:
    """Examples run as a user's do: optax itself relies on implicit promotion."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
