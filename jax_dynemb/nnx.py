# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Provides the flax.nnx layer: modules, gradients, optimizer and jit."""

from jax_dynemb._src.former_names import refuse as _refuse
from jax_dynemb._src.nnx import DynamicEmbed as DynamicEmbed
from jax_dynemb._src.nnx import EmbeddingBagCollection as EmbeddingBagCollection
from jax_dynemb._src.nnx import EmbeddingCollection as EmbeddingCollection
from jax_dynemb._src.nnx import Grads as Grads
from jax_dynemb._src.nnx import LookupGradients as LookupGradients
from jax_dynemb._src.nnx import Optimizer as Optimizer
from jax_dynemb._src.nnx import RowPrefetcher as RowPrefetcher
from jax_dynemb._src.nnx import Table as Table
from jax_dynemb._src.nnx import TableBatchedTTEmbeddingBag as TableBatchedTTEmbeddingBag
from jax_dynemb._src.nnx import TTEmbeddingBag as TTEmbeddingBag
from jax_dynemb._src.nnx import clip_by_global_norm as clip_by_global_norm
from jax_dynemb._src.nnx import jit as jit
from jax_dynemb._src.nnx import prefetch_rows as prefetch_rows
from jax_dynemb._src.nnx import update_tables as update_tables
from jax_dynemb._src.nnx import value_and_grad as value_and_grad

__getattr__ = _refuse("jde.nnx", {"ahead": "prefetch_rows", "Feed": "RowPrefetcher"})
