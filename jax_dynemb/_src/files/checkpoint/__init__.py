# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of models with tables: a thin layer over orbax."""

from jax_dynemb._src.files.checkpoint.layout import latest as latest
from jax_dynemb._src.files.checkpoint.layout import steps as steps
from jax_dynemb._src.files.checkpoint.open import capacities as capacities
from jax_dynemb._src.files.checkpoint.open import find_checkpoint as find_checkpoint
from jax_dynemb._src.files.checkpoint.open import stored_checkpoint as stored_checkpoint
from jax_dynemb._src.files.checkpoint.restore import Restored as Restored
from jax_dynemb._src.files.checkpoint.restore import restore as restore
from jax_dynemb._src.files.checkpoint.save_tree import save as save
from jax_dynemb._src.files.checkpoint.save_tree import wait as wait
