# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Copies and pickles of what is static, with its devices by their numbers."""

from __future__ import annotations

import io
import pickle
from typing import Any, Self

import jax


class Portable:
    """Copies and pickles an object that holds no arrays and never changes."""

    def __copy__(self) -> Self:
        """Returns the object itself, as for a string or a tuple of strings."""
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        """Returns the object itself."""
        return self

    def __reduce__(self) -> Any:
        """Names devices by platform and number; a process must have them to load."""
        return _rebuilt, (type(self), packed(vars(self)))


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, jax.Device):
            return _device, (obj.platform, obj.id)
        return NotImplemented


def packed(x: Any) -> bytes:
    """Pickles something that may refer to devices, such as meshes and shardings."""
    file = io.BytesIO()
    _Pickler(file).dump(x)
    return file.getvalue()


def unpacked(data: bytes) -> Any:
    """Reverses ``packed``; ValueError if this process has no such device."""
    return pickle.loads(data)


def _rebuilt(kind: type[Any], data: bytes) -> Any:
    new = object.__new__(kind)
    vars(new).update(unpacked(data))
    return new


def _device(platform: str, number: int) -> Any:
    try:
        found = {device.id: device for device in jax.devices(platform)}
    except RuntimeError:
        found = {}
    if number not in found:
        raise ValueError(
            f"this pickle has arrays on device {number} of platform '{platform}', "
            f"which this process lacks: it has {sorted(found) or 'none'}. Save the "
            "model with jde.checkpoint.save; a checkpoint loads on any devices."
        )
    return found[number]
