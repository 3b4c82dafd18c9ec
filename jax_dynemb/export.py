# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables as files for other programs."""

from jax_dynemb._src.files.dynamicemb import DynamicEmbReport as DynamicEmbReport
from jax_dynemb._src.files.dynamicemb.export import dynamicemb as dynamicemb
from jax_dynemb._src.files.fbgemm.export import fbgemm_rows as fbgemm_rows
from jax_dynemb._src.files.program import frozen as frozen
from jax_dynemb._src.files.program import load_program as load_program
from jax_dynemb._src.files.program import program as program
from jax_dynemb._src.files.safetensors import delta as delta
from jax_dynemb._src.files.safetensors.export import safetensors as safetensors
from jax_dynemb._src.files.stores import to_store as to_store
