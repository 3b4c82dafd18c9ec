# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""TorchRec's modules that call a method of a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax_dynemb._src.torchrec.jagged_tensor import JaggedTensor
from jax_dynemb._src.torchrec.keyed_jagged_tensor import KeyedJaggedTensor


class ComputeKJTToJTDict:
    """Calls ``to_dict``, as a module of TorchRec does."""

    def __call__(self, keyed_jagged_tensor: KeyedJaggedTensor) -> dict[str, Any]:
        """Returns the bags of each key by name.

        Args:
          keyed_jagged_tensor: of any keys.
        """
        return keyed_jagged_tensor.to_dict()


class ComputeJTDictToKJT:
    """Calls ``from_jt_dict``, as a module of TorchRec does."""

    def __call__(self, jt_dict: Mapping[str, JaggedTensor]) -> KeyedJaggedTensor:
        """Returns one tensor with the keys of the dict.

        Args:
          jt_dict: by key.
        """
        return KeyedJaggedTensor.from_jt_dict(jt_dict)
