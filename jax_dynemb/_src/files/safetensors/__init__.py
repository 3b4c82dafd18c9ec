# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Safetensors files of tables, for serving: exports, deltas, imports."""

from jax_dynemb._src.files.safetensors.delta import delta as delta
from jax_dynemb._src.files.safetensors.export import (
    write_safetensors as write_safetensors,
)
from jax_dynemb._src.files.safetensors.import_ import safetensors as safetensors
from jax_dynemb._src.files.safetensors.series import Series as Series
from jax_dynemb._src.files.safetensors.series import open_series as open_series
from jax_dynemb._src.files.safetensors.series import rows_of as rows_of
from jax_dynemb._src.files.safetensors.series import stored_exports as stored_exports
from jax_dynemb._src.files.safetensors.series import stored_series as stored_series
from jax_dynemb._src.files.safetensors.tensor_file import TensorFile as TensorFile
from jax_dynemb._src.files.safetensors.tensors import read_tensor as read_tensor
