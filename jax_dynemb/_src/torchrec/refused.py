# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Members of TorchRec's classes that have no counterpart, and what to use instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import jax
from flax import nnx

_PLACE = "JAX places arrays from outside: write jax.device_put(x, device_or_sharding)."
_EXCHANGE = (
    "the exchange between devices is inside the lookup: give mesh=... to the "
    "collection."
)

ATTRIBUTES = {
    "cuda": _PLACE,
    "dist_labels": _EXCHANGE,
    "dist_splits": _EXCHANGE,
    "dist_tensors": _EXCHANGE,
    "dist_init": _EXCHANGE,
    "is_caching_offsets": "offsets are computed where they are used; nothing is kept.",
}

_STATE = (
    "nnx.state(module) has all arrays, and jde.checkpoint saves tables; a TorchRec "
    "checkpoint is read by jde.torchrec.load_torch_state_dict(module, state_dict), and "
    "to_torch_state_dict(module) makes one."
)
_TABLES = (
    "rows lie in hash tables: split_embedding_weights() has those of row numbers, and "
    "module.coll.export(module.get_state(), table) streams all."
)
_PARAMETERS = (
    "tables have their own optimizer, see with_optimizer; nnx.state(model, nnx.Param) "
    "has the dense parameters."
)
MEMBERS = {
    "state_dict": _STATE,
    "load_state_dict": _STATE,
    "embedding_bags": _TABLES,
    "embeddings": _TABLES,
    "set_learning_rate": "write optimizer.update(model, grads, table_learning_rate=lr) "
    "of jde.nnx.Optimizer, or give the table's optimizer a schedule.",
    "parameters": _PARAMETERS,
    "named_parameters": _PARAMETERS,
    "reset_parameters": "unseen ids get initial rows; a new module has no rows.",
    "forward": "call the module: module(features).",
    "device": _PLACE,
    "cuda": _PLACE,
}


def refused_attribute(self: Any, name: str) -> NoReturn:
    """Raises the sentence on a name's successor, as ``__getattr__`` of a class."""
    kind = type(self).__name__
    if name in ATTRIBUTES:
        raise AttributeError(f"{kind}.{name} is refused: {ATTRIBUTES[name]}")
    raise AttributeError(f"{kind!r} object has no attribute {name!r}")


def refused_member(self: Any, name: str) -> NoReturn:
    """Stands for ``__getattr__`` of a collection, as ``refused_attribute``."""
    kind = type(self).__name__
    if name in MEMBERS:
        raise AttributeError(f"{kind}.{name} is refused: {MEMBERS[name]}")
    raise AttributeError(f"{kind!r} object has no attribute {name!r}")


def check_place(
    kind: str, device: Any, rngs: nnx.Rngs | None, options: Mapping[str, Any]
) -> None:
    """Refuses a device of JAX; torch's are ignored. Refuses what has no seeds.

    Raises:
      TypeError: there are no ``rngs``.
      ValueError: a device of JAX is given, which would be expected to count.
    """
    if isinstance(device, jax.Device):
        raise ValueError(
            f"device={device!r} is refused: tables are made on jax's default device "
            "(with jax.default_device(...)), or on the devices of mesh=..."
        )
    if not hasattr(rngs, "params") and "rows_of" not in options:
        raise TypeError(
            f"{kind} needs rngs, from which it draws the seed of initial rows: write "
            f"{kind}(..., rngs=nnx.Rngs(0))."
        )
