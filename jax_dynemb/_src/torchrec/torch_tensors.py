# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch in and out, through DLPack. Only these functions import torch.

Ids travel as pairs of words: an int64 DLPack would lose their upper half in JAX.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jax_dynemb._src.torchrec.arrays import is_pairs
from jax_dynemb._src.torchrec.jagged_tensor import JaggedTensor
from jax_dynemb._src.torchrec.keyed_jagged_tensor import KeyedJaggedTensor
from jax_dynemb._src.torchrec.keyed_tensor import KeyedTensor

_ALIGNMENT = 64  # XLA:CPU copies buffers that begin elsewhere
_RESERVED = (
    "{count} ids are -2, -3 or -4, which are reserved. Use -1 for padding, or map them "
    "to other values, for example with jde.hash_ids."
)
_COPY = (
    "zero_copy=True, but a tensor of {dtype} {why}: pass a contiguous int64 or float "
    "tensor from torch's allocator, or zero_copy=False."
)


def from_torch(x: Any, *, capacity: Any = None, zero_copy: bool = False) -> Any:
    """Makes a tensor of this package from one of TorchRec's.

    Arrays stay on their device. On a CPU they share torch's memory where that is
    contiguous and 64-byte aligned; otherwise, and on a GPU, they are copied once. With
    ``zero_copy`` they share it on a GPU too. Then do not donate them: a program that
    gets one as a donated argument may write into the tensor.

    Args:
      x: a KeyedJaggedTensor, JaggedTensor or KeyedTensor of TorchRec, or a dict of its
        constructor's arguments with torch tensors.
      capacity: of a KeyedJaggedTensor, as for its constructor; it copies.
      zero_copy: whether to refuse what cannot share memory.

    Returns:
      The tensor of the same name. Lengths are read on the host.

    Raises:
      TypeError: it is none of these.
      ValueError: an id is reserved, or ``zero_copy`` and memory cannot be shared.
    """
    given = x if isinstance(x, Mapping) else _arguments(x)
    if "length_per_key" in given:
        values = _array(given["values"], zero_copy)
        lengths, axis = given["length_per_key"], given.get("key_dim", 1)
        return KeyedTensor(list(given["keys"]), list(lengths), values, axis)
    values = _array(given["values"], zero_copy, ids=True)
    weights = _optional(given.get("weights"), lambda w: _array(w, zero_copy))
    lengths = _optional(given.get("lengths"), _on_host)
    offsets = _optional(given.get("offsets"), _on_host)
    if "keys" not in given:
        return JaggedTensor(values, weights, lengths, offsets)
    inverse = given.get("inverse_indices")
    return KeyedJaggedTensor(
        list(given["keys"]),
        values,
        weights,
        lengths,
        offsets,
        given.get("stride"),
        given.get("stride_per_key_per_rank") or None,
        inverse_indices=inverse and (list(inverse[0]), _on_host(inverse[1])),
        capacity=capacity,
    )


def to_torch(x: Any) -> dict[str, Any]:
    """Makes torch tensors, as arguments of TorchRec's constructor of the same name.

    Arrays stay on their device, without a copy where memory can be shared; do not
    write into them. Room between keys is left out.

    Args:
      x: a KeyedJaggedTensor, JaggedTensor or KeyedTensor.

    Returns:
      A dict: ``torchrec.KeyedJaggedTensor(**jde.torchrec.to_torch(kjt))``.

    Raises:
      TypeError: it is none of these.
    """
    if isinstance(x, KeyedTensor):
        return {
            "keys": x.keys(),
            "length_per_key": x.length_per_key(),
            "values": _tensor(x.values()),
            "key_dim": x.key_dim(),
        }
    if not isinstance(x, (KeyedJaggedTensor, JaggedTensor)):
        raise TypeError(f"to_torch takes tensors of jde.torchrec, not {type(x)}")
    packed = x.packed() if isinstance(x, KeyedJaggedTensor) else x
    weights = packed._weights
    made = {
        "values": _tensor(packed._values),
        "weights": None if weights is None else _tensor(weights),
        "lengths": _tensor(packed._lengths),
    }
    if isinstance(packed, JaggedTensor):
        return made
    made["keys"] = packed.keys()
    if packed.variable_stride_per_key():
        made["stride_per_key_per_rank"] = packed.stride_per_key_per_rank()
    else:
        made["stride"] = packed.stride_per_key()[0] if packed.keys() else 0
    if (inverse := packed.inverse_indices_or_none()) is not None:
        made["inverse_indices"] = (inverse[0], _tensor(inverse[1]).long())
    return made


def _arguments(x: Any) -> dict[str, Any]:
    """Reads a tensor of TorchRec by its methods."""
    if hasattr(x, "key_dim"):
        names = ("keys", "length_per_key", "values", "key_dim")
        return {name: getattr(x, name)() for name in names}
    if not hasattr(x, "weights_or_none"):
        raise TypeError(
            f"from_torch takes TorchRec's KeyedJaggedTensor, JaggedTensor or "
            f"KeyedTensor, or a dict of their arguments, not {type(x).__name__}."
        )
    given = {
        "values": x.values(),
        "lengths": x.lengths(),
        "weights": x.weights_or_none(),
    }
    if hasattr(x, "stride_per_key_per_rank"):
        given["keys"] = x.keys()
        if x.variable_stride_per_key():
            given["stride_per_key_per_rank"] = x.stride_per_key_per_rank()
        else:
            given["stride"] = x.stride()
        given["inverse_indices"] = x.inverse_indices_or_none()
    return given


def _optional(x: Any, convert: Any) -> Any:
    return None if x is None else convert(x)


def _on_host(tensor: Any) -> np.ndarray:
    return tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else tensor


def _array(tensor: Any, zero_copy: bool, ids: bool = False) -> Any:
    """A jax Array of a torch tensor; integers as ids of two words."""
    import torch  # pyright: ignore[reportMissingImports]

    tensor = tensor.detach()
    integers = not (tensor.is_floating_point() or tensor.dtype == torch.bool)
    if ids and integers:
        wide = tensor.to(torch.int64)
        bad = int(((wide <= -2) & (wide >= -4)).sum())
        if bad:
            raise ValueError(_RESERVED.format(count=bad))
        _check_shared(tensor, zero_copy, wide.dtype)
        words = wide.contiguous().view(torch.uint32)
        tensor = words.reshape(*wide.shape, 2)
    else:
        _check_shared(tensor, zero_copy, tensor.dtype)
    array = jax.dlpack.from_dlpack(tensor.contiguous())
    on_cpu = all(device.platform == "cpu" for device in array.devices())
    return array if zero_copy or on_cpu else array.copy()


def _check_shared(tensor: Any, zero_copy: bool, needed: Any) -> None:
    if not zero_copy or tensor.numel() == 0:
        return
    reasons = {
        f"becomes {needed}": tensor.dtype != needed,
        "is not contiguous": not tensor.is_contiguous(),
        "does not begin at a multiple of 64 bytes": tensor.data_ptr() % _ALIGNMENT != 0,
    }
    why = [reason for reason, holds in reasons.items() if holds]
    if why:
        raise ValueError(_COPY.format(dtype=tensor.dtype, why=why[0]))


def _tensor(array: Any) -> Any:
    """A torch tensor of an array; ids of two words as int64."""
    import torch  # pyright: ignore[reportMissingImports]

    if isinstance(array, np.ndarray):
        array = array if array.flags.writeable else array.copy()
        array = np.ascontiguousarray(array)
        if is_pairs(array):
            array = array.view(np.int64)[..., 0]
        return torch.from_numpy(array)
    tensor = torch.from_dlpack(array)
    if is_pairs(array):
        return tensor.view(torch.int64).squeeze(-1)
    return tensor
