# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""``quantize_embeddings``: a model for serving, with rows of 8 or 4 bits."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from jax_dynemb._src.files.program import frozen
from jax_dynemb._src.nnx import Table
from jax_dynemb._src.nnx.interface import TableModule
from jax_dynemb._src.torchrec.distributed import collections_of

Model = TypeVar("Model", bound=nnx.Module)


def quantize_embeddings(
    module: Model, dtype: Any = "int8", inplace: bool = False, **ignored: Any
) -> Model:
    """Packs the tables of every collection in a model, as ``jde.export.frozen`` does.

    Args:
      module: a model, or a collection. With a mesh its tables come to one device.
      dtype: "int8", "int4" or "float8_e4m3fn"; ``DataType.INT8``, ``torch.qint8`` and
        their like too.
      inplace: False copies the model, dense parameters too; True changes it.
      ignored: arguments of TorchRec's function without a meaning here, if they are
        None.

    Returns:
      The model, which only reads its tables.

    Raises:
      ValueError: no such dtype, or an argument that has no meaning here.
    """
    if wanted := [name for name, value in ignored.items() if value is not None]:
        raise ValueError(
            f"quantize_embeddings: {wanted} have no counterpart: rows are packed in "
            "one dtype, and read as the dtype of their tables. Leave them out."
        )
    made = module if inplace else nnx.merge(*_copied(nnx.split(module)))
    for module_with_tables in collections_of(made).values():
        _pack(module_with_tables, _name_of(dtype))
    return made


def _copied(parts: tuple[Any, Any]) -> tuple[Any, Any]:
    return parts[0], jax.tree.map(jnp.copy, parts[1])


def _pack(module: TableModule, dtype: str) -> None:
    module.coll, state = frozen(module.coll, module.get_state(), dtype=dtype)
    module.tables = nnx.data({name: Table(state[name]) for name in state})
    module.deterministic = True


def _name_of(dtype: Any) -> str:
    """Returns what ``frozen`` calls a dtype of TorchRec's or of torch."""
    name = str(getattr(dtype, "value", dtype)).rpartition(".")[2].lower()
    known = {"qint8": "int8", "quint8": "int8", "uint8": "int8", "quint4x2": "int4"}
    return {**known, "fp8": "float8_e4m3fn"}.get(name, name)
