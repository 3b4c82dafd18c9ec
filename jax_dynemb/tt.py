# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tensor-train tables: rows as products of small cores."""

from jax_dynemb._src.tt import CoreInitializer as CoreInitializer
from jax_dynemb._src.tt import TTResidual as TTResidual
from jax_dynemb._src.tt import TTState as TTState
from jax_dynemb._src.tt import apply_gradients as apply_gradients
from jax_dynemb._src.tt import approx_uniform as approx_uniform
from jax_dynemb._src.tt import core_gradients as core_gradients
from jax_dynemb._src.tt import core_optimizer as core_optimizer
from jax_dynemb._src.tt import decompose as decompose
from jax_dynemb._src.tt import find as find
from jax_dynemb._src.tt import from_dense as from_dense
from jax_dynemb._src.tt import from_fbtt as from_fbtt
from jax_dynemb._src.tt import full_weight as full_weight
from jax_dynemb._src.tt import init as init
from jax_dynemb._src.tt import lookup as lookup
from jax_dynemb._src.tt import normal as normal
from jax_dynemb._src.tt import orthogonal as orthogonal
from jax_dynemb._src.tt import suggested_shapes as suggested_shapes
from jax_dynemb._src.tt import tail_normal as tail_normal
from jax_dynemb._src.tt import to_fbtt as to_fbtt
from jax_dynemb._src.tt import to_torch as to_torch
from jax_dynemb._src.tt import uniform as uniform
