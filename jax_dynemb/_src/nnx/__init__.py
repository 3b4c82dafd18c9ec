# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Provides the flax.nnx layer: modules, gradients, optimizer and jit."""

from jax_dynemb._src.nnx.collection import (
    EmbeddingBagCollection as EmbeddingBagCollection,
)
from jax_dynemb._src.nnx.collection import EmbeddingCollection as EmbeddingCollection
from jax_dynemb._src.nnx.embed import DynamicEmbed as DynamicEmbed
from jax_dynemb._src.nnx.grads import Grads as Grads
from jax_dynemb._src.nnx.grads import LookupGradients as LookupGradients
from jax_dynemb._src.nnx.jit import jit as jit
from jax_dynemb._src.nnx.optimizer import Optimizer as Optimizer
from jax_dynemb._src.nnx.optimizer import clip_by_global_norm as clip_by_global_norm
from jax_dynemb._src.nnx.optimizer import update_tables as update_tables
from jax_dynemb._src.nnx.overlap import Overlap as Overlap
from jax_dynemb._src.nnx.overlap import overlap as overlap
from jax_dynemb._src.nnx.row_prefetcher import RowPrefetcher as RowPrefetcher
from jax_dynemb._src.nnx.row_prefetcher import prefetch_rows as prefetch_rows
from jax_dynemb._src.nnx.table_batched import (
    TableBatchedTTEmbeddingBag as TableBatchedTTEmbeddingBag,
)
from jax_dynemb._src.nnx.tt_embedding_bag import TTEmbeddingBag as TTEmbeddingBag
from jax_dynemb._src.nnx.value_and_grad import value_and_grad as value_and_grad
from jax_dynemb._src.nnx.variable import Table as Table
