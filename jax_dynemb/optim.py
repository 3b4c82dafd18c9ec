# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers of tables: fused ones, the optax bridge, clipping by the global norm."""

from jax_dynemb._src.optim import Counter as Counter
from jax_dynemb._src.optim import CowClip as CowClip
from jax_dynemb._src.optim import OptaxOptimizer as OptaxOptimizer
from jax_dynemb._src.optim import StateSpec as StateSpec
from jax_dynemb._src.optim import __getattr__ as __getattr__
from jax_dynemb._src.optim import adagrad as adagrad
from jax_dynemb._src.optim import adam as adam
from jax_dynemb._src.optim import clip_by_global_norm as clip_by_global_norm
from jax_dynemb._src.optim import ftrl as ftrl
from jax_dynemb._src.optim import lamb as lamb
from jax_dynemb._src.optim import lars as lars
from jax_dynemb._src.optim import lion as lion
from jax_dynemb._src.optim import momentum as momentum
from jax_dynemb._src.optim import none as none
from jax_dynemb._src.optim import partial_rowwise_adam as partial_rowwise_adam
from jax_dynemb._src.optim import partial_rowwise_lamb as partial_rowwise_lamb
from jax_dynemb._src.optim import rmsprop as rmsprop
from jax_dynemb._src.optim import rowwise_adagrad as rowwise_adagrad
from jax_dynemb._src.optim import rowwise_rmsprop as rowwise_rmsprop
from jax_dynemb._src.optim import sgd as sgd
