# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of models with tables: a thin layer over orbax."""

from jax_dynemb.files.checkpoint._capacities import capacities as capacities
from jax_dynemb.files.checkpoint._layout import latest as latest
from jax_dynemb.files.checkpoint._layout import steps as steps
from jax_dynemb.files.checkpoint._open import find_checkpoint as find_checkpoint
from jax_dynemb.files.checkpoint._open import stored_checkpoint as stored_checkpoint
from jax_dynemb.files.checkpoint._restore import Restored as Restored
from jax_dynemb.files.checkpoint._restore import restore as restore
from jax_dynemb.files.checkpoint._save import save as save
from jax_dynemb.files.checkpoint._save import wait as wait
