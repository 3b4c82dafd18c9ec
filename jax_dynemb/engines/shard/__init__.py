# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Operates on the arrays of one device: update, insert, export, count, grow."""

from jax_dynemb.engines.shard._counters import EVENTS as EVENTS
from jax_dynemb.engines.shard._counters import counter_totals as counter_totals
from jax_dynemb.engines.shard._counters import counter_values as counter_values
from jax_dynemb.engines.shard._counters import stats as stats
from jax_dynemb.engines.shard._export import Query as Query
from jax_dynemb.engines.shard._export import Shards as Shards
from jax_dynemb.engines.shard._export import export as export
from jax_dynemb.engines.shard._export import export_index as export_index
from jax_dynemb.engines.shard._grow import grown_state as grown_state
from jax_dynemb.engines.shard._grow import larger as larger
from jax_dynemb.engines.shard._insert import NewRows as NewRows
from jax_dynemb.engines.shard._insert import checked as checked
from jax_dynemb.engines.shard._insert import insert as insert
from jax_dynemb.engines.shard._insert import not_lookups as not_lookups
from jax_dynemb.engines.shard._insert import same_clock as same_clock
from jax_dynemb.engines.shard._insert import slots_only as slots_only
from jax_dynemb.engines.shard._insert import store as store
from jax_dynemb.engines.shard._scores import PACKED as PACKED
from jax_dynemb.engines.shard._scores import customized as customized
from jax_dynemb.engines.shard._scores import next_score as next_score
from jax_dynemb.engines.shard._scores import set_score as set_score
from jax_dynemb.engines.shard._scores import used_since as used_since
from jax_dynemb.engines.shard._scores import words_of as words_of
from jax_dynemb.engines.shard._update import RowGradients as RowGradients
from jax_dynemb.engines.shard._update import check_table as check_table
from jax_dynemb.engines.shard._update import pair_lookups as pair_lookups
from jax_dynemb.engines.shard._update import row_gradients as row_gradients
from jax_dynemb.engines.shard._update import step_of as step_of
from jax_dynemb.engines.shard._update import update_rows as update_rows
from jax_dynemb.engines.shard._weights import of_feature as of_feature
from jax_dynemb.engines.shard._weights import one_row_input as one_row_input
from jax_dynemb.engines.shard._weights import reading as reading
from jax_dynemb.engines.shard._weights import weighted_features as weighted_features
