# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Hash tables: each operation once, as what one device does with its own arrays.

A layout says where arrays lie and runs the operation there. A strategy says what
travels between devices: nothing on one of them.
"""

from jax_dynemb._src.engines.hash.columns import join_columns as join_columns
from jax_dynemb._src.engines.hash.engine import HashEngine as HashEngine
from jax_dynemb._src.engines.hash.layouts import OneDevice as OneDevice
from jax_dynemb._src.engines.hash.layouts import Placement as Placement
from jax_dynemb._src.engines.hash.layouts import Stack as Stack
from jax_dynemb._src.engines.hash.layouts import by_shape as by_shape
from jax_dynemb._src.engines.hash.layouts import cut_into_blocks as cut_into_blocks
from jax_dynemb._src.engines.hash.layouts import make_placement as make_placement
from jax_dynemb._src.engines.hash.layouts import own_block as own_block
from jax_dynemb._src.engines.hash.plan import Plan as Plan
from jax_dynemb._src.engines.hash.plan import TablePlan as TablePlan
from jax_dynemb._src.engines.hash.plan import bytes_of as bytes_of
from jax_dynemb._src.engines.hash.plan import exchange_of as exchange_of
from jax_dynemb._src.engines.hash.plan import make_plan as make_plan
