// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/removals.h: what a table notes of rows that it loses: their keys in a log, and how many were
// evicted although a recent lookup had used them.
//
// The log is a ring for each row of the table's counters, so for each part that a shard may be cut
// into: it stays where its buckets are. A ring is a head, which counts the keys that were ever
// written, and the latest keys. A call that writes more keys than a ring has places leaves any of
// them there; a reader knows by the head.
#pragma once

#include <cstdint>

#include "core/atomic.h"
#include "core/macros.h"
#include "core/score.h"
#include "core/table_ref.h"

namespace dynemb {

// Apart from TableRef, which every kernel takes.
struct Removals {
  uint64_t* rings;     // [counter_rows, 1 + ring_size], or null: no log
  uint64_t keep_for;   // units of the clock; 0: young rows are not counted
  uint32_t ring_size;  // keys
};

DYNEMB_HD bool notes_removals(Removals const& removals) {
  return removals.rings != nullptr || removals.keep_for != 0;
}

// Called once for each removed row, by any number of threads.
DYNEMB_HD void log_removed(TableRef const& table, Removals const& removals, int32_t slot, Key key) {
  if (removals.rings == nullptr) return;
  auto const part = slot / kBucketCapacity / (table.local_buckets / table.counter_rows);
  auto* const ring = removals.rings + part * (int64_t{removals.ring_size} + 1);
  auto const number = fetch_add(ring, 1);
  atomic_store(ring + 1 + number % removals.ring_size, key);
}

// `clock`: of the lookup that evicts the row.
DYNEMB_HD bool is_young(TableRef const& table, Removals const& removals, uint64_t score,
                        uint64_t clock) {
  return age_of(table.policy, score, clock) <= removals.keep_for;
}

}  // namespace dynemb
