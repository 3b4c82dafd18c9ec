# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Stores: rows of tables by key, outside of the arrays of a program."""

from jax_dynemb.stores._identified import Identified as Identified
from jax_dynemb.stores._layout import Layout as Layout
from jax_dynemb.stores._log import Log as Log
from jax_dynemb.stores._lookup import StoreLookup as StoreLookup
from jax_dynemb.stores._memory import Memory as Memory
from jax_dynemb.stores._redis import Redis as Redis
from jax_dynemb.stores._rocksdb import RocksDB as RocksDB
from jax_dynemb.stores._store import Store as Store
