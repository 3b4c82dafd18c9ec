# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Names what other packages of this library use, beside the optimizers themselves."""

from jax_dynemb._src.optim.base import NoUpdate as NoUpdate
from jax_dynemb._src.optim.base import StateSpec as StateSpec
from jax_dynemb._src.optim.base import TableOptimizer as TableOptimizer
from jax_dynemb._src.optim.clip import rows_sum_of_squares as rows_sum_of_squares
from jax_dynemb._src.optim.clip import scale_to_norm as scale_to_norm
from jax_dynemb._src.optim.clip import sum_of_squares as sum_of_squares
from jax_dynemb._src.optim.columns import check_columns as check_columns
from jax_dynemb._src.optim.functor import Functor as Functor
from jax_dynemb._src.optim.fused import Fused as Fused
from jax_dynemb._src.optim.momentum import sgd as sgd
from jax_dynemb._src.optim.numbers import check_number as check_number
from jax_dynemb._src.optim.numbers import known_number as known_number
from jax_dynemb._src.optim.optax import as_optimizer as as_optimizer
from jax_dynemb._src.optim.row_local import optax_rules as optax_rules
from jax_dynemb._src.optim.state_dtypes import (
    checked_state_dtypes as checked_state_dtypes,
)
from jax_dynemb._src.optim.state_dtypes import stored_states as stored_states
