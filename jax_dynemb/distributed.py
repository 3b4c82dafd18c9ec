# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Several processes, one mesh. JAX's own runtime connects them; this finds it."""

from jax_dynemb._src.distributed import ensure_initialized as ensure_initialized
from jax_dynemb._src.distributed import replicate as replicate
from jax_dynemb._src.distributed import split as split
