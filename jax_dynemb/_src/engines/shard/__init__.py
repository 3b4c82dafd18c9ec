# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Operates on the arrays of one device: update, insert, export, count, grow."""

from jax_dynemb._src.engines.shard.bucket_stats import BucketStats as BucketStats
from jax_dynemb._src.engines.shard.bucket_stats import bucket_stats as bucket_stats
from jax_dynemb._src.engines.shard.changed_rows import ChangedRows as ChangedRows
from jax_dynemb._src.engines.shard.changed_rows import CopiedTable as CopiedTable
from jax_dynemb._src.engines.shard.changed_rows import HostRows as HostRows
from jax_dynemb._src.engines.shard.changed_rows import copied as copied
from jax_dynemb._src.engines.shard.changed_rows import (
    copy_changed_rows as copy_changed_rows,
)
from jax_dynemb._src.engines.shard.changed_rows import to_host as to_host
from jax_dynemb._src.engines.shard.counters import EVENTS as EVENTS
from jax_dynemb._src.engines.shard.counters import CountedArrays as CountedArrays
from jax_dynemb._src.engines.shard.counters import counter_totals as counter_totals
from jax_dynemb._src.engines.shard.counters import counter_values as counter_values
from jax_dynemb._src.engines.shard.counters import joined_counters as joined_counters
from jax_dynemb._src.engines.shard.counters import set_counters as set_counters
from jax_dynemb._src.engines.shard.counters import stats as stats
from jax_dynemb._src.engines.shard.departed import hold_rows as hold_rows
from jax_dynemb._src.engines.shard.departed import read_rings as read_rings
from jax_dynemb._src.engines.shard.due_decay import decays_lookups as decays_lookups
from jax_dynemb._src.engines.shard.due_decay import due_factors as due_factors
from jax_dynemb._src.engines.shard.due_decay import with_due_decay as with_due_decay
from jax_dynemb._src.engines.shard.erase_where import ALONE as ALONE
from jax_dynemb._src.engines.shard.erase_where import ShardGroup as ShardGroup
from jax_dynemb._src.engines.shard.erase_where import erase_where as erase_where
from jax_dynemb._src.engines.shard.erase_where import squared_norms as squared_norms
from jax_dynemb._src.engines.shard.export_rows import Query as Query
from jax_dynemb._src.engines.shard.export_rows import Shards as Shards
from jax_dynemb._src.engines.shard.export_rows import export as export
from jax_dynemb._src.engines.shard.export_rows import export_index as export_index
from jax_dynemb._src.engines.shard.grow import grown_spec as grown_spec
from jax_dynemb._src.engines.shard.grow import grown_state as grown_state
from jax_dynemb._src.engines.shard.grow import larger as larger
from jax_dynemb._src.engines.shard.grow import split_spec as split_spec
from jax_dynemb._src.engines.shard.grow_tier import (
    moved_on_one_device as moved_on_one_device,
)
from jax_dynemb._src.engines.shard.grow_tier import moved_rows as moved_rows
from jax_dynemb._src.engines.shard.grow_tier import with_grown_homes as with_grown_homes
from jax_dynemb._src.engines.shard.insert import NewRows as NewRows
from jax_dynemb._src.engines.shard.insert import checked as checked
from jax_dynemb._src.engines.shard.insert import same_clock as same_clock
from jax_dynemb._src.engines.shard.insert import store as store
from jax_dynemb._src.engines.shard.insert import touched as touched
from jax_dynemb._src.engines.shard.insert import without_nonfinite as without_nonfinite
from jax_dynemb._src.engines.shard.pins import set_pins as set_pins
from jax_dynemb._src.engines.shard.pins import split_pins as split_pins
from jax_dynemb._src.engines.shard.rule import Rule as Rule
from jax_dynemb._src.engines.shard.rule import check_rule as check_rule
from jax_dynemb._src.engines.shard.scores import PACKED as PACKED
from jax_dynemb._src.engines.shard.scores import next_score as next_score
from jax_dynemb._src.engines.shard.scores import set_score as set_score
from jax_dynemb._src.engines.shard.scores import used_since as used_since
from jax_dynemb._src.engines.shard.scores import words_of as words_of
from jax_dynemb._src.engines.shard.tier import records_of as records_of
from jax_dynemb._src.engines.shard.tier import rows_in_order as rows_in_order
from jax_dynemb._src.engines.shard.tier import tier_stats as tier_stats
from jax_dynemb._src.engines.shard.tier import without_homes as without_homes
from jax_dynemb._src.engines.shard.totals import total_in_words as total_in_words
from jax_dynemb._src.engines.shard.update import RowGradients as RowGradients
from jax_dynemb._src.engines.shard.update import check_hyper as check_hyper
from jax_dynemb._src.engines.shard.update import check_table as check_table
from jax_dynemb._src.engines.shard.update import pair_lookups as pair_lookups
from jax_dynemb._src.engines.shard.update import row_gradients as row_gradients
from jax_dynemb._src.engines.shard.update import step_of as step_of
from jax_dynemb._src.engines.shard.update import update_rows as update_rows
from jax_dynemb._src.engines.shard.warnings import (
    may_stay_untrained as may_stay_untrained,
)
from jax_dynemb._src.engines.shard.warnings import warn_of_losses as warn_of_losses
from jax_dynemb._src.engines.shard.weights import of_feature as of_feature
from jax_dynemb._src.engines.shard.weights import one_row_input as one_row_input
from jax_dynemb._src.engines.shard.weights import reading as reading
from jax_dynemb._src.engines.shard.weights import weighted_features as weighted_features
