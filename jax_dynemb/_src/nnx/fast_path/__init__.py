# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Calls of compiled functions on Modules, without taking the Modules apart each time.

``nnx.jit`` splits and merges its Modules in every call, which costs the host more than
many a step. ``FastPath`` does so once for each structure. A fingerprint recognizes the
structure in later calls, which then pass the values of the Variables only.
"""

from jax_dynemb._src.nnx.fast_path.fast_path import FastPath as FastPath
from jax_dynemb._src.nnx.fast_path.flax import WEAKREF_SLOT as WEAKREF_SLOT
from jax_dynemb._src.nnx.fast_path.flax import ObservedModule as ObservedModule
from jax_dynemb._src.nnx.fast_path.flax import writable as writable
from jax_dynemb._src.nnx.fast_path.graph import graph_nodes as graph_nodes
from jax_dynemb._src.nnx.fast_path.graph import is_graph_node as is_graph_node
from jax_dynemb._src.nnx.fast_path.graph import iter_variables as iter_variables
from jax_dynemb._src.nnx.fast_path.program import Program as Program
from jax_dynemb._src.nnx.fast_path.program import reads as reads
from jax_dynemb._src.nnx.fast_path.unreturned import (
    on_tables_changed as on_tables_changed,
)
from jax_dynemb._src.nnx.fast_path.unreturned import on_tables_read as on_tables_read
from jax_dynemb._src.nnx.fast_path.unreturned import unwatched as unwatched
from jax_dynemb._src.nnx.fast_path.unreturned import watch as watch
