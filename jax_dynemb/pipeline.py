# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Builds batches and copies them to devices while the step before runs."""

from jax_dynemb._src.pipeline import Prefetched as Prefetched
from jax_dynemb._src.pipeline import prefetch as prefetch
