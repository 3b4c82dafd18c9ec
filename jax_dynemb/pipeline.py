# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Has batches, and rows of coming batches, ready while the step before runs."""

from jax_dynemb._src.nnx import Overlap as Overlap
from jax_dynemb._src.nnx import overlap as overlap
from jax_dynemb._src.pipeline import Prefetched as Prefetched
from jax_dynemb._src.pipeline import prefetch as prefetch
