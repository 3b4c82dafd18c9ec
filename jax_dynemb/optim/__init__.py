# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers of tables: fused ones, the optax bridge, clipping by the global norm."""

from jax_dynemb.optim._base import StateSpec as StateSpec
from jax_dynemb.optim._clip import clip_by_global_norm as clip_by_global_norm
from jax_dynemb.optim._fused import adagrad as adagrad
from jax_dynemb.optim._fused import adam as adam
from jax_dynemb.optim._fused import rowwise_adagrad as rowwise_adagrad
from jax_dynemb.optim._fused import sgd as sgd
from jax_dynemb.optim._optax import OptaxOptimizer as OptaxOptimizer
