# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The dump directories of NVIDIA's DynamicEmb: written, read, imported."""

from jax_dynemb._src.files.dynamicemb.buckets import (
    lossless_capacity as lossless_capacity,
)
from jax_dynemb._src.files.dynamicemb.dump import dumped_tables as dumped_tables
from jax_dynemb._src.files.dynamicemb.export import write_dynamicemb as write_dynamicemb
from jax_dynemb._src.files.dynamicemb.format import OPTIMIZERS as OPTIMIZERS
from jax_dynemb._src.files.dynamicemb.open import stored_dumps as stored_dumps
from jax_dynemb._src.files.dynamicemb.write_table import (
    DynamicEmbReport as DynamicEmbReport,
)
