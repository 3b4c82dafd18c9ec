# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Says where the arrays of tables lie, and runs functions there."""

from jax_dynemb._src.engines.hash.layouts.batch import Inputs as Inputs
from jax_dynemb._src.engines.hash.layouts.batch import MeshBatch as MeshBatch
from jax_dynemb._src.engines.hash.layouts.blocks import grown as grown
from jax_dynemb._src.engines.hash.layouts.blocks import own_block as own_block
from jax_dynemb._src.engines.hash.layouts.one_device import OneDevice as OneDevice
from jax_dynemb._src.engines.hash.layouts.one_device import WholeBatch as WholeBatch
from jax_dynemb._src.engines.hash.layouts.peers import Peers as Peers
from jax_dynemb._src.engines.hash.layouts.placement import Placement as Placement
from jax_dynemb._src.engines.hash.layouts.placement import (
    make_placement as make_placement,
)
from jax_dynemb._src.engines.hash.layouts.stacks import Stack as Stack
from jax_dynemb._src.engines.hash.layouts.stacks import by_shape as by_shape
from jax_dynemb._src.engines.hash.layouts.stacks import (
    cut_into_blocks as cut_into_blocks,
)
from jax_dynemb._src.engines.hash.layouts.stacks import states_of as states_of

Layout = OneDevice | Placement
