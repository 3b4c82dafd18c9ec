# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers of tables: fused ones, the optax bridge, clipping by the global norm."""

from jax_dynemb._src.optim.adagrad import CowClip as CowClip
from jax_dynemb._src.optim.adagrad import adagrad as adagrad
from jax_dynemb._src.optim.adagrad import ftrl as ftrl
from jax_dynemb._src.optim.adagrad import rowwise_adagrad as rowwise_adagrad
from jax_dynemb._src.optim.adam import adam as adam
from jax_dynemb._src.optim.adam import lamb as lamb
from jax_dynemb._src.optim.adam import partial_rowwise_adam as partial_rowwise_adam
from jax_dynemb._src.optim.adam import partial_rowwise_lamb as partial_rowwise_lamb
from jax_dynemb._src.optim.base import StateSpec as StateSpec
from jax_dynemb._src.optim.clip import clip_by_global_norm as clip_by_global_norm
from jax_dynemb._src.optim.counter import Counter as Counter
from jax_dynemb._src.optim.momentum import lars as lars
from jax_dynemb._src.optim.momentum import lion as lion
from jax_dynemb._src.optim.momentum import momentum as momentum
from jax_dynemb._src.optim.momentum import none as none
from jax_dynemb._src.optim.momentum import sgd as sgd
from jax_dynemb._src.optim.optax import OptaxOptimizer as OptaxOptimizer
from jax_dynemb._src.optim.refused import refusal as _refusal
from jax_dynemb._src.optim.rmsprop import rmsprop as rmsprop
from jax_dynemb._src.optim.rmsprop import rowwise_rmsprop as rowwise_rmsprop


def __getattr__(name: str) -> object:
    """Says what to use instead of an optimizer that tables do not have."""
    raise AttributeError(_refusal(name))
