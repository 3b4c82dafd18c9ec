# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Initialisers: the first value of a row, a function of (seed, table, key, column).

The formulas are in core/initializer.h and give the same bits on every platform. Each
class names its routine there (`kernel`) and knows the parameters it takes.
"""

from jax_dynemb._src.initializers import Constant as Constant
from jax_dynemb._src.initializers import Debug as Debug
from jax_dynemb._src.initializers import DefaultUniform as DefaultUniform
from jax_dynemb._src.initializers import Initializer as Initializer
from jax_dynemb._src.initializers import Normal as Normal
from jax_dynemb._src.initializers import TruncatedNormal as TruncatedNormal
from jax_dynemb._src.initializers import Uniform as Uniform
from jax_dynemb._src.initializers import constant as constant
from jax_dynemb._src.initializers import debug as debug
from jax_dynemb._src.initializers import normal as normal
from jax_dynemb._src.initializers import truncated_normal as truncated_normal
from jax_dynemb._src.initializers import uniform as uniform
from jax_dynemb._src.initializers import zeros as zeros
