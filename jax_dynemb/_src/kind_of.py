# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How an error message names a value that a caller passed."""

from typing import Any


def kind_of(x: Any) -> str:
    """Describes a value, such as "an array float32[3]"."""
    if hasattr(x, "dtype") and hasattr(x, "shape"):
        return f"an array {x.dtype}{list(x.shape)}"
    if isinstance(x, type):
        return f"the class {x.__name__}"
    return f"a {type(x).__name__}" if not isinstance(x, str) else repr(x)
