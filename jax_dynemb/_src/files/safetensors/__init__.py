# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Safetensors files of tables, for serving: exports, deltas, imports."""

from jax_dynemb._src.files.safetensors.delta import delta as delta
from jax_dynemb._src.files.safetensors.export import (
    write_safetensors as write_safetensors,
)
from jax_dynemb._src.files.safetensors.series import stored_exports as stored_exports
