# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables as files for other programs."""

from jax_dynemb.export._delta import delta as delta
from jax_dynemb.export._dynamicemb import dynamicemb as dynamicemb
from jax_dynemb.export._dynamicemb_table import DynamicEmbReport as DynamicEmbReport
from jax_dynemb.export._frozen import frozen as frozen
from jax_dynemb.export._program import load_program as load_program
from jax_dynemb.export._program import program as program
from jax_dynemb.export._safetensors import safetensors as safetensors
