# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tells whole numbers that a caller passed from bools and floats."""

from typing import Any

import numpy as np


def is_whole(x: Any) -> bool:
    """Tells whether a value is an integer of Python or NumPy, but no bool."""
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool)
