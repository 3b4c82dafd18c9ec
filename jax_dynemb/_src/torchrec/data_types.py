# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""TorchRec's data types as dtypes of NumPy, and back."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.torchrec.configs import DataType

_NAMES = {
    DataType.FP32: "float32",
    DataType.FP16: "float16",
    DataType.BF16: "bfloat16",
    DataType.FP64: "float64",
    DataType.NFP8: "float8_e4m3fn",
    DataType.FP8: "float8_e4m3fn",
    DataType.INT64: "int64",
    DataType.INT32: "int32",
    DataType.INT16: "int16",
    DataType.INT8: "int8",
    DataType.UINT8: "uint8",
    DataType.UINT32: "uint32",
    DataType.INT4: "int4",
    DataType.INT2: "int2",
}


def data_type_to_dtype(data_type: DataType | str) -> np.dtype:
    """Returns the dtype that a data type names.

    Args:
      data_type: of TorchRec, or its name.

    Raises:
      ValueError: no dtype has that name.
    """
    name = str(getattr(data_type, "value", data_type)).upper()
    if name not in DataType.__members__:
        raise ValueError(f"no dtype of {data_type}: use one of {', '.join(_NAMES)}.")
    return jnp.dtype(_NAMES[DataType(name)])


def dtype_to_data_type(dtype: Any) -> DataType:
    """Returns the data type that names a dtype.

    Args:
      dtype: of NumPy or JAX, its name, or one of torch.

    Raises:
      ValueError: no data type names it.
    """
    name = str(dtype).removeprefix("torch.")
    name = name if name in _NAMES.values() else jnp.dtype(dtype).name
    found = [data_type for data_type, known in _NAMES.items() if known == name]
    if not found:
        raise ValueError(
            f"no DataType names {dtype}: use one of {', '.join(_NAMES.values())}."
        )
    return found[0]
