# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Safetensors files of tables, for serving: exports, deltas, imports."""

from jax_dynemb.files.safetensors._delta import delta as delta
from jax_dynemb.files.safetensors._open import stored_exports as stored_exports
from jax_dynemb.files.safetensors.export import write_safetensors as write_safetensors
