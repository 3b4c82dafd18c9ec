// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/slot.h: what stands in the slot array of a lookup.
//
// A slot number is local to a shard. Negative values say why an id has no row; "pending" exists
// between the phases of one lookup only and is never in its result.
//
// An update, a gather or a scatter gets slots from its caller: they may be those of another table,
// or any numbers. So each is compared with its table where it is used, and skipped if it does not
// fit.
#pragma once

#include <cstdint>

#include "core/macros.h"

namespace dynemb {

constexpr int32_t kPaddingSlot = -1;      // no id here: zero row, no gradient
constexpr int32_t kRefusedSlot = -2;      // an id without a row: initial values, no gradient
constexpr int32_t kNotAdmittedSlot = -3;  // the same, of an id that a rule has kept out
constexpr int32_t kMissingSlot = -4;      // not in the table, not claimed yet

// `slot` is claimed for this id, unless a key of higher rank takes it before the phase ends.
DYNEMB_HD int32_t pending(int32_t slot) { return -5 - slot; }
DYNEMB_HD bool is_pending(int32_t slot) { return slot <= -5; }

// Whether a slot is one of the first `num_slots`: one comparison, also for negative ones.
DYNEMB_HD bool is_live(int32_t slot, uint32_t num_slots) {
  return static_cast<uint32_t>(slot) < num_slots;
}

// Whether it says that it has a row, and has none: an update counts these.
DYNEMB_HD bool is_foreign(int32_t slot, uint32_t num_slots) {
  return slot >= 0 && !is_live(slot, num_slots);
}

}  // namespace dynemb
