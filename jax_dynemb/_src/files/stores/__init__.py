# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of live tables into stores, and back into tables."""

from jax_dynemb._src.files.stores.from_store import from_store as from_store
from jax_dynemb._src.files.stores.to_store import to_store as to_store
