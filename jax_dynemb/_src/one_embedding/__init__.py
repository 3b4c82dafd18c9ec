# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""OneEmbedding's names over ``jde.nnx`` and ``jde.tiers``."""

from jax_dynemb._src.one_embedding.module import (
    MultiTableEmbedding as MultiTableEmbedding,
)
from jax_dynemb._src.one_embedding.options import StoreOptions as StoreOptions
from jax_dynemb._src.one_embedding.options import (
    make_cached_host_mem_store_options as make_cached_host_mem_store_options,
)
from jax_dynemb._src.one_embedding.options import (
    make_cached_ssd_store_options as make_cached_ssd_store_options,
)
from jax_dynemb._src.one_embedding.options import (
    make_constant_initializer as make_constant_initializer,
)
from jax_dynemb._src.one_embedding.options import (
    make_device_mem_store_options as make_device_mem_store_options,
)
from jax_dynemb._src.one_embedding.options import (
    make_normal_initializer as make_normal_initializer,
)
from jax_dynemb._src.one_embedding.options import (
    make_table_options as make_table_options,
)
from jax_dynemb._src.one_embedding.options import (
    make_trunc_normal_initializer as make_trunc_normal_initializer,
)
from jax_dynemb._src.one_embedding.options import (
    make_uniform_initializer as make_uniform_initializer,
)
