# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One collection of dynamic and tensor-train tables: each engine runs its own."""

from jax_dynemb.engines.mixed._engine import MixedEngine as MixedEngine
from jax_dynemb.engines.mixed._engine import MixedResidual as MixedResidual
from jax_dynemb.engines.mixed._engine import by_kind as by_kind
from jax_dynemb.engines.mixed._engine import with_residuals as with_residuals
