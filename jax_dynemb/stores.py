# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Stores: rows of tables by key, outside of the arrays of a program."""

from jax_dynemb._src.stores import Identified as Identified
from jax_dynemb._src.stores import Layout as Layout
from jax_dynemb._src.stores import Log as Log
from jax_dynemb._src.stores import Memory as Memory
from jax_dynemb._src.stores import Redis as Redis
from jax_dynemb._src.stores import RocksDB as RocksDB
from jax_dynemb._src.stores import Store as Store
from jax_dynemb._src.stores import StoreLookup as StoreLookup
