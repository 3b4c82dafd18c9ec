# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What one device does with its own arrays: update, insert, export, count, grow."""

from jax_dynemb.engines.shard._chunks import joined as joined
from jax_dynemb.engines.shard._chunks import part as part
from jax_dynemb.engines.shard._counters import counter_values as counter_values
from jax_dynemb.engines.shard._export import Exported as Exported
from jax_dynemb.engines.shard._export import Parts as Parts
from jax_dynemb.engines.shard._export import Query as Query
from jax_dynemb.engines.shard._insert import NewRows as NewRows
from jax_dynemb.engines.shard._scores import PACKED as PACKED
from jax_dynemb.engines.shard._update import RowGradients as RowGradients
