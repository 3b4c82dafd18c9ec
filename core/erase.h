// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/erase.h: keys are erased. Two phases: find the slots of all keys, then vacate these. The
// clock stays: it says when rows were used, and an empty slot has no score.
#pragma once

#include "core/atomic.h"
#include "core/find.h"
#include "core/macros.h"
#include "core/table_ref.h"
#include "core/vacate.h"

namespace dynemb {

// Returns the slot to empty, or a negative number.
DYNEMB_HD int32_t find_to_erase(TableRef const& table, Key key) {
  return is_padding(key) || is_reserved(key) ? kPaddingSlot : find(table, key);
}

// True for the one caller that emptied the slot: the swap decides between duplicates.
DYNEMB_HD bool erase_slot(TableRef const& table, Removals const& removals, int32_t slot) {
  if (slot < 0) return false;
  auto* const score = score_at(table, slot);
  auto const seen = atomic_load(score);
  if (seen == kEmptyScore || compare_and_swap(score, seen, kEmptyScore) != seen) return false;
  if (is_pinned(seen)) fetch_add(table.counters + kPinned, ~uint64_t{0});
  vacate(table, removals, slot);
  return true;
}

}  // namespace dynemb
