# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of tables as data: what they are, and streams of them, wherever they lie."""

from jax_dynemb._src.rows.exported import Exported as Exported
from jax_dynemb._src.rows.exported import joined as joined
from jax_dynemb._src.rows.exported import padded as padded
from jax_dynemb._src.rows.exported import part as part
from jax_dynemb._src.rows.hash import bucket_of as bucket_of
from jax_dynemb._src.rows.hash import fmix64 as fmix64
from jax_dynemb._src.rows.identity import Identity as Identity
from jax_dynemb._src.rows.identity import Relation as Relation
from jax_dynemb._src.rows.identity import check_ancestor as check_ancestor
from jax_dynemb._src.rows.identity import identity_of as identity_of
from jax_dynemb._src.rows.keep_best import keep_best as keep_best
from jax_dynemb._src.rows.keep_best import keep_best_elsewhere as keep_best_elsewhere
from jax_dynemb._src.rows.key_sets import among as among
from jax_dynemb._src.rows.key_sets import distinct as distinct
from jax_dynemb._src.rows.key_sets import held_last as held_last
from jax_dynemb._src.rows.key_sets import last_holders as last_holders
from jax_dynemb._src.rows.schema import Schema as Schema
from jax_dynemb._src.rows.sketch_counts import counter_of as counter_of
from jax_dynemb._src.rows.sketch_counts import counts_of as counts_of
from jax_dynemb._src.rows.sketch_counts import resized_sketch as resized_sketch
from jax_dynemb._src.rows.stored_table import SKETCH_HAS_NO_IDS as SKETCH_HAS_NO_IDS
from jax_dynemb._src.rows.stored_table import AdmissionCounts as AdmissionCounts
from jax_dynemb._src.rows.stored_table import StoredTable as StoredTable
from jax_dynemb._src.rows.use_counts import PIN as PIN
from jax_dynemb._src.rows.use_counts import leaving_order as leaving_order
from jax_dynemb._src.rows.use_counts import use_counts as use_counts
from jax_dynemb._src.rows.without_place import Keys as Keys
from jax_dynemb._src.rows.without_place import roomy_capacity as roomy_capacity
from jax_dynemb._src.rows.without_place import without_place as without_place
