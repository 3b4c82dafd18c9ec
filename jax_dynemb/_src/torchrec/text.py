# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Jagged tensors as text, in TorchRec's form; long ones cut as by NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def keyed_jagged_tensor(kjt: Any) -> str:
    """Bags by key."""
    inner = ",\n".join(
        f'    "{key}": {_bags(jt, indent=8)}' for key, jt in kjt.to_dict().items()
    )
    return _braces("KeyedJaggedTensor", inner)


def jagged_tensor(jt: Any) -> str:
    """Bags, and their weights where there are any."""
    _check_axes(jt)
    if jt.weights_or_none() is None:
        return _braces("JaggedTensor", f"    {_lists(jt.to_dense())}")
    return _braces("JaggedTensor", _fields(jt, indent=4))


def keyed_tensor(kt: Any) -> str:
    """Columns by key."""
    inner = ",\n".join(
        f'    "{key}": {_lists(np.asarray(array))}'
        for key, array in kt.to_dict().items()
    )
    return _braces("KeyedTensor", inner)


def _braces(name: str, inner: str) -> str:
    return f"{name}({{\n{inner}\n}})\n" if inner else f"{name}()\n"


def _bags(jt: Any, indent: int) -> str:
    _check_axes(jt)
    if jt.weights_or_none() is None:
        return _lists(jt.to_dense())
    return f"{{\n{_fields(jt, indent)}\n    }}"


def _fields(jt: Any, indent: int) -> str:
    room = " " * indent
    values, weights = _lists(jt.to_dense()), _lists(jt.to_dense_weights())
    return f'{room}"values": {values},\n{room}"weights": {weights}'


def _check_axes(jt: Any) -> None:
    """Refuses what TorchRec does not show either."""
    if (axes := np.ndim(jt.values())) > 2:
        raise ValueError(
            f"values of {axes} axes have no text: write repr(...) for their shapes, or "
            "to_dense() for the arrays."
        )


def _lists(bags: Sequence[np.ndarray] | np.ndarray) -> str:
    """Shows all numbers, or the first and the last ones where there are too many."""
    options = np.get_printoptions()
    if sum(bag.size for bag in bags) <= options["threshold"]:
        return str([bag.tolist() for bag in bags])
    return _cut(bags, options["edgeitems"])


def _cut(items: Any, edge: int) -> str:
    if isinstance(items, np.generic):
        return str(items)
    some = list(items)
    if len(some) > 2 * edge:
        some[edge:-edge] = ["..."]
    shown = [x if isinstance(x, str) else _cut(x, edge) for x in some]
    return f"[{', '.join(shown)}]"
