# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The operations of ``Tables`` on a mesh."""

from jax_dynemb.sharding._maintenance import clear as clear
from jax_dynemb.sharding._maintenance import erase as erase
from jax_dynemb.sharding._maintenance import init as init
from jax_dynemb.sharding._maintenance import insert as insert
from jax_dynemb.sharding._maintenance import local_shards as local_shards
from jax_dynemb.sharding._serving import find as find
from jax_dynemb.sharding._serving import weight_gradients as weight_gradients
from jax_dynemb.sharding._slots import gather as gather
from jax_dynemb.sharding._slots import scatter as scatter
from jax_dynemb.sharding._training import apply_gradients as apply_gradients
from jax_dynemb.sharding._training import lookup as lookup
from jax_dynemb.sharding._training import reduce_gradients as reduce_gradients
