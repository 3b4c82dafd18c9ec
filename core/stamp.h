// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/stamp.h: whether the slots that a lookup returned mean the rows of this table.
//
// A lookup returns its table's stamp and clock beside the slots. The stamp differs between tables
// that were initialised apart, so slots of another run are recognised. The clock only moves
// forward, so a state that is older than the lookup is recognised too. Both are one comparison for
// a table, whatever the number of ids.
#pragma once

#include <cstdint>

#include "core/feature_ref.h"
#include "core/macros.h"
#include "core/table_ref.h"

namespace dynemb {

struct Stamp {
  uint64_t table;  // kStamp of the table
  uint64_t clock;  // kClock, after the lookup
};

DYNEMB_HD Stamp stamp_of(TableRef const& table, uint64_t clock) {
  return {table.counters[kStamp], clock};
}

// `stamp`: of the lookup, or null where the caller has looked the slots up in this very state.
DYNEMB_HD bool is_current(TableRef const& table, Stamp const* stamp) {
  if (stamp == nullptr) return true;
  // Both are read at once: neither waits for the other.
  auto const same = stamp->table == table.counters[kStamp];
  auto const not_older = stamp->clock <= table.counters[kClock];
  return same && not_older;
}

// The count of updates after this one; an update that is skipped is not counted.
DYNEMB_HD uint64_t next_step(TableRef const& table, Stamp const* stamp) {
  return table.counters[kStep] + (is_current(table, stamp) ? 1 : 0);
}

// The slots that the gradients of a feature may go to: none of a table that the lookup did not see.
DYNEMB_HD uint32_t slot_limit(TableRef const& table, FeatureRef const& feature,
                              Stamp const* stamp) {
  return is_current(table, stamp) ? slot_limit(table, feature) : 0;
}

}  // namespace dynemb
