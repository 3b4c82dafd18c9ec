# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables: the functional core that users and the Flax layer stand on."""

from jax_dynemb._src.engines.shard import RowGradients as RowGradients
from jax_dynemb._src.rows import Exported as Exported
from jax_dynemb._src.table.arguments import batch_of as batch_of
from jax_dynemb._src.table.arguments import check_not_donated as check_not_donated
from jax_dynemb._src.table.arguments import check_sizes as check_sizes
from jax_dynemb._src.table.arguments import check_values as check_values
from jax_dynemb._src.table.arguments import weights_of as weights_of
from jax_dynemb._src.table.bags import sum_of_bags as sum_of_bags
from jax_dynemb._src.table.bags import valid_ids as valid_ids
from jax_dynemb._src.table.chunks import erase_keys as erase_keys
from jax_dynemb._src.table.chunks import id_arrays as id_arrays
from jax_dynemb._src.table.chunks import insert_chunks as insert_chunks
from jax_dynemb._src.table.counts_again import sketch_of as sketch_of
from jax_dynemb._src.table.counts_again import with_counter as with_counter
from jax_dynemb._src.table.counts_again import with_counts as with_counts
from jax_dynemb._src.table.declaration import configs_of as configs_of
from jax_dynemb._src.table.growth import Growth as Growth
from jax_dynemb._src.table.growth import abstract as abstract
from jax_dynemb._src.table.growth import abstract_after as abstract_after
from jax_dynemb._src.table.marks import Delta as Delta
from jax_dynemb._src.table.marks import Mark as Mark
from jax_dynemb._src.table.portable import packed as packed
from jax_dynemb._src.table.portable import unpacked as unpacked
from jax_dynemb._src.table.prefetch_during import Begun as Begun
from jax_dynemb._src.table.prefetch_during import begin_prefetch as begin_prefetch
from jax_dynemb._src.table.reading import without_rows as without_rows
from jax_dynemb._src.table.replication import identity_in as identity_in
from jax_dynemb._src.table.replication import log_head as log_head
from jax_dynemb._src.table.replication import read_log_since as read_log_since
from jax_dynemb._src.table.replication import with_removed as with_removed
from jax_dynemb._src.table.row_operations import insert_kept as insert_kept
from jax_dynemb._src.table.tables import Tables as Tables
