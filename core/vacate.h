// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/vacate.h: how a row is removed and its slot stays empty. Whatever removes rows calls
// `vacate` for each slot, and then `count_left` once for many. An eviction overwrites a slot in
// place: it calls `note_evicted`, counts in kEvicted, and kRows stays.
#pragma once

#include <cstdint>

#include "core/atomic.h"
#include "core/macros.h"
#include "core/removals.h"
#include "core/table_ref.h"

namespace dynemb {

// Empties a slot that holds a row. Called by one thread for a slot.
DYNEMB_HD void vacate(TableRef const& table, Removals const& removals, int32_t slot) {
  log_removed(table, removals, slot, *key_at(table, slot));
  *key_at(table, slot) = kEmptyKey;
  atomic_store(score_at(table, slot), kEmptyScore);  // others may compare it: core/erase.h
  *digest_at(table, slot) = 0;
}

// Notes a row that is about to be overwritten. Returns whether it counts in kEvictedYoung.
DYNEMB_HD bool note_evicted(TableRef const& table, Removals const& removals, int32_t slot,
                            Entry const& row, uint64_t clock) {
  log_removed(table, removals, slot, row.key);
  return is_young(table, removals, row.score, clock);
}

// Counts rows whose slots were emptied. Called by any number of threads.
// `cause`: kErased or kRemovedByRule.
DYNEMB_HD void count_left(TableRef const& table, Counter cause, uint64_t rows) {
  if (rows == 0) return;
  fetch_add(table.counters + kRows, ~rows + 1);
  fetch_add(table.counters + cause, rows);
  note_left(table);
}

}  // namespace dynemb
