# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Stores: rows of tables by key, outside of the arrays of a program."""

from jax_dynemb._src.stores.layout import Layout as Layout
from jax_dynemb._src.stores.log import Log as Log
from jax_dynemb._src.stores.lookup import StoreLookup as StoreLookup
from jax_dynemb._src.stores.memory import Memory as Memory
from jax_dynemb._src.stores.redis import Redis as Redis
from jax_dynemb._src.stores.rocksdb import RocksDB as RocksDB
from jax_dynemb._src.stores.store import Identified as Identified
from jax_dynemb._src.stores.store import Store as Store
from jax_dynemb._src.stores.store import rows_of_store as rows_of_store
