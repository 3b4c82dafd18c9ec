// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tiers/slots.h: the slots of a call that have no frame, found by all threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/atomic.h"
#include "core/slot.h"
#include "core/tiers/tier_ref.h"
#include "cpu/loops/row_ops.h"
#include "cpu/loops/thread_pool.h"

namespace dynemb::cpu {

constexpr int64_t kSlotsPerPiece = 4096;
constexpr int64_t kLocationsAhead = 64;  // whose locations are prefetched
constexpr int64_t kOwnersAhead = 32;     // whose frames' owners are prefetched

inline void set_bits(uint32_t* word, uint32_t bits) {
  for (auto seen = atomic_load(word); (seen & bits) != bits;) {
    auto const found = compare_and_swap(word, seen, seen | bits);
    if (found == seen) return;
    seen = found;
  }
}

inline uint32_t* owner_word(TierRef const& tier, int32_t slot, int frame) {
  return tier.owners + frame_row(tier, slot / kBucketCapacity, frame);
}

// Returns the row of the arrays that the location of a live slot names, or -1. Owners are not read:
// they say the same in arrays that no one has damaged, and cost a cache miss for each id.
inline int64_t located_row(TierRef const& tier, int32_t slot) {
  auto const frame = tier.location[slot] - 1;
  if (frame >= static_cast<uint32_t>(tier.frames)) return -1;
  return frame_row(tier, slot / kBucketCapacity, static_cast<int>(frame));
}

// No table has the slots from `limit` on.
inline void prefetch_location(TierRef const& tier, int32_t slot, uint32_t limit) {
  if (is_live(slot, limit)) __builtin_prefetch(tier.location + slot);
  keep_prefetches();
}

// Once the location is there. A bucket has up to four lines of owners.
inline void prefetch_owner(TierRef const& tier, int32_t slot, uint32_t limit) {
  if (!is_live(slot, limit)) return;
  if (auto const row = located_row(tier, slot); row >= 0) __builtin_prefetch(tier.owners + row);
  keep_prefetches();
}

// Of each kSlotsPerPiece positions the slots that have no frame.
using Pieces = std::vector<std::vector<int32_t>>;

inline Pieces pieces_for(int64_t count) {
  return Pieces(size_t((count + kSlotsPerPiece - 1) / kSlotsPerPiece));
}

// Returns all slots, each once, in order.
inline std::vector<int32_t> distinct(Pieces const& pieces) {
  size_t total = 0;
  for (auto const& each : pieces) total += each.size();
  std::vector<int32_t> all;
  all.reserve(total);
  for (auto const& each : pieces) all.insert(all.end(), each.begin(), each.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace dynemb::cpu
