# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Builds a perfect hash as an export does: by its file, which needs NumPy only."""

import runpy
from pathlib import Path

import numpy as np
import torch

from jax_dynemb_torch._perfect_hash import PerfectHash

_ROOT = Path(__file__).resolve().parents[2]
_BUILDER = runpy.run_path(
    str(_ROOT / "jax_dynemb/_src/files/safetensors/perfect_hash.py")
)


def perfect_hash(keys: np.ndarray | torch.Tensor) -> PerfectHash:
    """Returns the hash of int64[n], as a reader maps it."""
    arrays = _BUILDER["perfect_hash"](torch.as_tensor(keys).numpy())
    return PerfectHash(*map(torch.as_tensor, arrays))
