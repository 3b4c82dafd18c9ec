// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/score.h: the score of a slot. The row with the lowest score is evicted first.
//
// A score is 0 for an empty slot and lies in [1, 2^63) for a live one. The bit above belongs to
// core/claim.h. Every policy keeps the clock of the last lookup that used the row in the score, so
// "used in this batch" needs no memory of its own:
//   kStep, kTimestamp  clock (a count of lookups, or nanoseconds)
//   kLfu               occurrences << 32 | low half of the clock
//   kCustomized        the user's score << 32 | low half of the clock
#pragma once

#include <cstdint>

#include "core/atomic.h"
#include "core/macros.h"

namespace dynemb {

enum class ScorePolicy : int32_t { kStep = 0, kTimestamp = 1, kLfu = 2, kCustomized = 3 };

constexpr uint64_t kEmptyScore = 0;
constexpr uint64_t kHighScoreLimit = 0x7fffffffu;  // what fits above the clock, below bit 63

DYNEMB_HD bool is_packed(ScorePolicy policy) { return policy >= ScorePolicy::kLfu; }

DYNEMB_HD uint64_t pack_score(uint64_t high, uint64_t clock) {
  return (high < kHighScoreLimit ? high : kHighScoreLimit) << 32 | (clock & 0xffffffffu);
}

// The clock of the next lookup; `now` is 0 where the policy counts lookups. The low half is never
// 0, so a packed score is never that of an empty slot.
DYNEMB_HD uint64_t next_clock(uint64_t clock, uint64_t now) {
  auto next = now > clock ? now : clock + 1;
  if (static_cast<uint32_t>(next) == 0) ++next;
  return next;
}

// The bits of a score that hold the clock.
DYNEMB_HD uint64_t clock_bits(ScorePolicy policy) {
  return is_packed(policy) ? 0xffffffffu : ~uint64_t{0};
}

// Was the row used by the lookup with this clock?
DYNEMB_HD bool is_touched(ScorePolicy policy, uint64_t score, uint64_t clock) {
  return ((score ^ clock) & clock_bits(policy)) == 0;
}

// Units of the clock between the last use of a row and the latest lookup. A packed score holds 32
// bits of the clock, and the difference wraps as they do.
DYNEMB_HD uint64_t age_of(ScorePolicy policy, uint64_t score, uint64_t clock) {
  if (is_packed(policy)) return static_cast<uint32_t>(clock) - static_cast<uint32_t>(score);
  return score < clock ? clock - score : 0;
}

// The score of a row that has just been stored, before any of its occurrences is counted.
DYNEMB_HD uint64_t first_score(ScorePolicy policy, uint64_t clock) {
  return is_packed(policy) ? pack_score(0, clock) : clock;
}

// What one more occurrence makes of a score.
DYNEMB_HD uint64_t next_score(ScorePolicy policy, uint64_t score, uint64_t clock, uint64_t given) {
  auto const high = score >> 32;
  if (policy == ScorePolicy::kLfu) return pack_score(high + 1, clock);
  auto const keep = is_touched(policy, score, clock) && high > given;
  return pack_score(keep ? high : given, clock);
}

// Marks the row as used. Any number of threads may touch one slot at the same time; the result
// does not depend on their order.
DYNEMB_HD void touch(uint64_t* address, ScorePolicy policy, uint64_t clock, uint64_t given) {
  auto seen = atomic_load(address);
  if (!is_packed(policy)) {
    if (seen != clock) atomic_store(address, clock);  // duplicates of one id need not all store
    return;
  }
  for (;;) {
    // Marked already: only the count moves, and an addition cannot fail, however many meet here.
    if (policy == ScorePolicy::kLfu && is_touched(policy, seen, clock) &&
        seen >> 32 < kHighScoreLimit / 2) {
      fetch_add(address, uint64_t{1} << 32);
      return;
    }
    auto const wanted = next_score(policy, seen, clock, given);
    if (wanted == seen) return;
    auto const found = compare_and_swap(address, seen, wanted);
    if (found == seen) return;
    seen = found;
  }
}

}  // namespace dynemb
