# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tensor-train tables: rows as products of small cores."""

from jax_dynemb.tt._config import TTConfig as TTConfig
from jax_dynemb.tt._decompose import decompose as decompose
from jax_dynemb.tt._fbtt_state import from_fbtt as from_fbtt
from jax_dynemb.tt._fbtt_state import holds_sums as holds_sums
from jax_dynemb.tt._fbtt_state import to_fbtt as to_fbtt
from jax_dynemb.tt._full_weight import full_weight as full_weight
from jax_dynemb.tt._initializers import CoreInitializer as CoreInitializer
from jax_dynemb.tt._initializers import approx_uniform as approx_uniform
from jax_dynemb.tt._initializers import from_dense as from_dense
from jax_dynemb.tt._initializers import normal as normal
from jax_dynemb.tt._initializers import orthogonal as orthogonal
from jax_dynemb.tt._initializers import tail_normal as tail_normal
from jax_dynemb.tt._initializers import uniform as uniform
from jax_dynemb.tt._lookup import apply_gradients as apply_gradients
from jax_dynemb.tt._lookup import check_gradient as check_gradient
from jax_dynemb.tt._lookup import core_gradients as core_gradients
from jax_dynemb.tt._lookup import find as find
from jax_dynemb.tt._lookup import init as init
from jax_dynemb.tt._lookup import init_from_words as init_from_words
from jax_dynemb.tt._lookup import lookup as lookup
from jax_dynemb.tt._lookup import only_finite as only_finite
from jax_dynemb.tt._lookup import residual_of as residual_of
from jax_dynemb.tt._lookup import rows_by_residual as rows_by_residual
from jax_dynemb.tt._lookup import update_cores as update_cores
from jax_dynemb.tt._numbers import without_strangers as without_strangers
from jax_dynemb.tt._optimizers import core_optimizer as core_optimizer
from jax_dynemb.tt._shapes import suggested_shapes as suggested_shapes
from jax_dynemb.tt._state import COUNTERS as COUNTERS
from jax_dynemb.tt._state import TTResidual as TTResidual
from jax_dynemb.tt._state import TTState as TTState
from jax_dynemb.tt._torch_state import to_torch as to_torch
