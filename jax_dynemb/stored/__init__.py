# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables outside of a program: what checkpoint, export, import_ and tools share."""

from jax_dynemb.stored._hash import bucket_of as bucket_of
from jax_dynemb.stored._hash import fmix64 as fmix64
from jax_dynemb.stored._load import clear_table as clear_table
from jax_dynemb.stored._load import keep_best as keep_best
from jax_dynemb.stored._load import keep_best_elsewhere as keep_best_elsewhere
from jax_dynemb.stored._load import set_counters as set_counters
from jax_dynemb.stored._schema import Schema as Schema
from jax_dynemb.stored._table import StoredTable as StoredTable
from jax_dynemb.stored._table import check_whole as check_whole
from jax_dynemb.stored._table import live_table as live_table
from jax_dynemb.stored._tensor_header import FORMAT_VERSION as FORMAT_VERSION
from jax_dynemb.stored._tensor_header import MIXED_INDEX_VERSION as MIXED_INDEX_VERSION
