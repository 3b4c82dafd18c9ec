# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Names what other packages of this library use, beside the optimizers themselves."""

from jax_dynemb.optim._base import NoUpdate as NoUpdate
from jax_dynemb.optim._base import StateSpec as StateSpec
from jax_dynemb.optim._base import TableOptimizer as TableOptimizer
from jax_dynemb.optim._catalog import sgd as sgd
from jax_dynemb.optim._clip import rows_sum_of_squares as rows_sum_of_squares
from jax_dynemb.optim._clip import scale_to_norm as scale_to_norm
from jax_dynemb.optim._clip import sum_of_squares as sum_of_squares
from jax_dynemb.optim._columns import check_columns as check_columns
from jax_dynemb.optim._functor import Functor as Functor
from jax_dynemb.optim._fused import Fused as Fused
from jax_dynemb.optim._numbers import check_number as check_number
from jax_dynemb.optim._numbers import known_number as known_number
from jax_dynemb.optim._optax import as_optimizer as as_optimizer
from jax_dynemb.optim._row_local import optax_rules as optax_rules
from jax_dynemb.optim._state_dtypes import checked_state_dtypes as checked_state_dtypes
from jax_dynemb.optim._state_dtypes import stored_states as stored_states
