# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Names what other packages of this library use, beside the public names."""

from jax_dynemb._src.nnx.fast_path import is_graph_node as is_graph_node
from jax_dynemb._src.nnx.table_module import TableModule as TableModule
from jax_dynemb._src.nnx.variable import writable as writable
