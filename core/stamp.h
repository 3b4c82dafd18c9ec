// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/stamp.h: whether the slots that a lookup returned mean the rows of this table.
//
// A lookup returns a stamp beside the slots: its run and its moment (core/lineage.h). A state
// has the nonces of its latest lookups, so it knows those that lead to it. The lookup of another
// run, of a branch, of a later state or of before a restore is not among them. That is a
// comparison or two for a table, whatever the number of ids.
#pragma once

#include <cstdint>

#include "core/feature_ref.h"
#include "core/lineage.h"
#include "core/macros.h"
#include "core/table_ref.h"

namespace dynemb {

struct Stamp {
  uint64_t run;  // kStamp of the table
  Moment moment;
};

DYNEMB_HD Stamp stamp_of(TableRef const& table, Moment const& moment) {
  return {table.counters[kStamp], moment};
}

// `stamp`: of the lookup, or null where the caller has looked the slots up in this very state.
DYNEMB_HD bool is_current(TableRef const& table, Stamp const* stamp) {
  if (stamp == nullptr) return true;
  // All are read at once: none waits for another.
  auto const run = table.counters[kStamp], latest = table.counters[kNonce];
  auto const nonce = stamp->moment.nonce;
  if (stamp->run != run || nonce == 0) return false;
  return nonce == latest || nonce == *nonce_at(table, stamp->moment.number);
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
