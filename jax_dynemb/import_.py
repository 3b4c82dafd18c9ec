# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Files of other programs into tables."""

from jax_dynemb._src.files.dynamicemb.import_ import dynamicemb as dynamicemb
from jax_dynemb._src.files.fbgemm.import_ import fbgemm_rows as fbgemm_rows
from jax_dynemb._src.files.live import Imported as Imported
from jax_dynemb._src.files.safetensors.import_ import safetensors as safetensors
from jax_dynemb._src.files.stores import from_store as from_store
