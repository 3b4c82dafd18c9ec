# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of models with tables: a thin layer over orbax."""

from jax_dynemb._src.files.checkpoint import Restored as Restored
from jax_dynemb._src.files.checkpoint import capacities as capacities
from jax_dynemb._src.files.checkpoint import latest as latest
from jax_dynemb._src.files.checkpoint import restore as restore
from jax_dynemb._src.files.checkpoint import save as save
from jax_dynemb._src.files.checkpoint import steps as steps
from jax_dynemb._src.files.checkpoint import wait as wait
