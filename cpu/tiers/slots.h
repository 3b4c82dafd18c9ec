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
#include "cpu/loops/thread_pool.h"

namespace dynemb::cpu {

constexpr int64_t kSlotsPerPiece = 4096;
constexpr int64_t kPlacesAhead = 32;  // whose places are prefetched

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

// Where the row of a slot lies; no table has the slots from `limit` on.
inline void prefetch_place(TierRef const& tier, int32_t slot, uint32_t limit) {
  if (!is_live(slot, limit)) return;
  __builtin_prefetch(tier.place + slot);
  __builtin_prefetch(tier.owners + frame_row(tier, slot / kBucketCapacity, 0));
}

// Calls look(piece, position) for all positions, and prefetches the places of later ones.
template <class Look>
void for_each_slot(TierRef const& tier, int32_t const* slots, int64_t count, uint32_t limit,
                   ThreadPool const& pool, Look const& look) {
  for_each_range(pool, count, kSlotsPerPiece, [&](int64_t begin, int64_t end) {
    for (auto i = begin; i < end; ++i) {
      auto const ahead = i + kPlacesAhead;
      if (ahead < end) prefetch_place(tier, slots[ahead], limit);
      look(size_t(begin / kSlotsPerPiece), i);
    }
  });
}

// Those of each piece.
using Pieces = std::vector<std::vector<int32_t>>;

inline Pieces pieces_for(int64_t count) {
  return Pieces(size_t((count + kSlotsPerPiece - 1) / kSlotsPerPiece));
}

// All of them, each once, in order.
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
