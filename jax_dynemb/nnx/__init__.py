# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Provides the flax.nnx layer: modules, gradients, optimizer and jit."""

from jax_dynemb.nnx._collection import EmbeddingBagCollection as EmbeddingBagCollection
from jax_dynemb.nnx._collection import EmbeddingCollection as EmbeddingCollection
from jax_dynemb.nnx._embed import DynamicEmbed as DynamicEmbed
from jax_dynemb.nnx._feed import Feed as Feed
from jax_dynemb.nnx._feed import ahead as ahead
from jax_dynemb.nnx._grads import Grads as Grads
from jax_dynemb.nnx._grads import LookupGradients as LookupGradients
from jax_dynemb.nnx._jit import jit as jit
from jax_dynemb.nnx._optimizer import Optimizer as Optimizer
from jax_dynemb.nnx._optimizer import clip_by_global_norm as clip_by_global_norm
from jax_dynemb.nnx._optimizer import update_tables as update_tables
from jax_dynemb.nnx._tt_embedding_bag import TTEmbeddingBag as TTEmbeddingBag
from jax_dynemb.nnx._value_and_grad import value_and_grad as value_and_grad
from jax_dynemb.nnx._variable import Table as Table
