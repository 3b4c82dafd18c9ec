# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables: the functional core that users and the Flax layer stand on."""

from jax_dynemb.engines.shard._export import Exported as Exported
from jax_dynemb.engines.shard._update import RowGradients as RowGradients
from jax_dynemb.table._tables import Tables as Tables
