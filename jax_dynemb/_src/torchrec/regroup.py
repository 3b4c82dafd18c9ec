# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""TorchRec's functions below ``KeyedTensor.regroup``, which all do the same.

There they differ in the operator of FBGEMM that copies. Here XLA makes one copy of a
concatenation, whatever is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax_dynemb._src.torchrec.keyed_tensor import KeyedTensor


def regroup_kts(
    keyed_tensors: Sequence[KeyedTensor], groups: Sequence[Sequence[str]]
) -> list[Any]:
    """Puts keys of several tensors side by side, as ``KeyedTensor.regroup`` does.

    Args:
      keyed_tensors: where the keys are looked for, in order.
      groups: the keys of each group; one may be in several.

    Returns:
      An array for each group.

    Raises:
      KeyError: no tensor has a key.
    """
    return KeyedTensor.regroup(keyed_tensors, groups)


def permute_multi_embedding(
    keyed_tensors: Sequence[KeyedTensor], groups: Sequence[Sequence[str]]
) -> list[Any]:
    """Puts keys side by side; the same as ``regroup_kts`` in all that it takes."""
    return regroup_kts(keyed_tensors, groups)


def all_keys_used_once(
    keyed_tensors: Sequence[KeyedTensor], groups: Sequence[Sequence[str]]
) -> bool:
    """Tells whether each key of the tensors is in one group, and there once.

    Args:
      keyed_tensors: of any keys.
      groups: the keys of each group.
    """
    keys = [key for tensor in keyed_tensors for key in tensor.keys()]  # noqa: SIM118
    used = [key for group in groups for key in group]
    return len(set(keys)) == len(keys) == len(set(used)) == len(used)


# Private names of TorchRec that its tests, and so programs, import.
PRIVATE = {
    "_all_keys_used_once": all_keys_used_once,
    "_fbgemm_permute_pooled_embs": regroup_kts,
    "_regroup_keyed_tensors": regroup_kts,
}
