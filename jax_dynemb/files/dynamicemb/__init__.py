# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The dump directories of NVIDIA's DynamicEmb: written, read, imported."""

from jax_dynemb.files.dynamicemb._buckets import lossless_capacity as lossless_capacity
from jax_dynemb.files.dynamicemb._dump import dumped_tables as dumped_tables
from jax_dynemb.files.dynamicemb._format import OPTIMIZERS as OPTIMIZERS
from jax_dynemb.files.dynamicemb._open import stored_dumps as stored_dumps
from jax_dynemb.files.dynamicemb._write_table import (
    DynamicEmbReport as DynamicEmbReport,
)
from jax_dynemb.files.dynamicemb.export import write_dynamicemb as write_dynamicemb
