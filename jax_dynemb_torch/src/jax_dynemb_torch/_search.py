# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Places of keys that have no perfect hash: a binary search among sorted keys.

Some twenty times as slow as the hash in a large table; it works for any keys.
"""

from __future__ import annotations

import torch


def sort(keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sorts distinct keys.

    Args:
      keys: int64[n]; the place of ``keys[i]`` is i + 1.

    Returns:
      The keys in ascending order and the place of each, both int64[n].

    Raises:
      ValueError: a key is there twice.
    """
    ordered, order = keys.sort()
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        raise ValueError(f"key {int(twice[0])} is there twice; write the table again.")
    return ordered, order + 1


def find(
    ids: torch.Tensor, ordered: torch.Tensor, places: torch.Tensor
) -> torch.Tensor:
    """Looks up where ids stand.

    Args:
      ids: int64[n].
      ordered: int64[m], m >= 1, as ``sort`` returns them.
      places: int64[m].

    Returns:
      int64[n]: places; 0 for an id that is not among the keys.
    """
    # An id above all keys would stand behind the last one; it is compared with that.
    at = torch.searchsorted(ordered, ids.contiguous()).clamp_(max=len(ordered) - 1)
    known = ordered.index_select(0, at) == ids
    return places.index_select(0, at) * known
