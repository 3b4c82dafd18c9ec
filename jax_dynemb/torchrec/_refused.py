# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Names of TorchRec that have no counterpart, and what to use instead."""

from __future__ import annotations

from typing import Any, NoReturn

_PLACE = "JAX places arrays from outside: write jax.device_put(x, device_or_sharding)."
_STREAM = "XLA orders its own streams, so arrays need no stream to be recorded on."
_PINNED = "jax.device_put copies from any host memory: leave pin_memory out."
_EXCHANGE = (
    "the exchange between devices is inside the lookup: give mesh=... to the "
    "collection."
)

ATTRIBUTES = {
    "device": _PLACE,
    "to": _PLACE,
    "cuda": _PLACE,
    "record_stream": _STREAM,
    "pin_memory": _PINNED,
    "dist_labels": _EXCHANGE,
    "dist_splits": _EXCHANGE,
    "dist_tensors": _EXCHANGE,
    "dist_init": _EXCHANGE,
    "is_caching_offsets": "offsets are computed where they are used; nothing is kept.",
}


def refused_attribute(self: Any, name: str) -> NoReturn:
    """Stands for ``__getattr__`` of a class: says what takes the place of a name.

    Raises:
      AttributeError: always.
    """
    kind = type(self).__name__
    if name in ATTRIBUTES:
        raise AttributeError(f"{kind}.{name} is refused: {ATTRIBUTES[name]}")
    raise AttributeError(f"{kind!r} object has no attribute {name!r}")


def refuse_device(device: Any) -> None:
    """Refuses the device of a collection.

    Raises:
      ValueError: one is given.
    """
    if device is not None:
        raise ValueError(
            f"device={device!r} is refused: tables are made on jax's default device "
            "(with jax.default_device(...)), or on the devices of mesh=..."
        )
