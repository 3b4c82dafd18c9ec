// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/score.h: the score of a slot. The row with the lowest score is evicted first.
//
// A score is 0 for an empty slot and lies in [1, 2^62) for a live one. Bit 62 marks a row that is
// pinned: no eviction and no rule removes it. The bit above belongs to core/claim.h. Every policy
// keeps the clock of the last lookup that used the row in the score, so "used in this batch" needs
// no memory of its own:
//   kStep, kTimestamp  clock (a count of lookups, or nanoseconds)
//   kLfu               occurrences << 32 | low half of the clock
//   kCustomized        clock; the score that the user gives stands apart (core/custom_score.h), and
//   the
//                      row with the lowest custom score is evicted first
//   kDecayingLfu       decaying count << 32 | low half of the clock, see below
//
// A decaying count weighs a use half as much for each half-life that has passed since. Lookups are
// cut into epochs of one half-life. Within its epoch a use counts kUse at first and nearly 2 * kUse
// at last; at the first use in a later epoch what was there is halved once for each epoch between.
// So uses of one lookup add the same number to a row, in any order, and what a row weighs beside
// others (decaying_rank) does not change while it is not used.
#pragma once

#include <cstdint>

#include "core/atomic.h"
#include "core/macros.h"

namespace dynemb {

enum class ScorePolicy : int16_t {
  kStep = 0,
  kTimestamp = 1,
  kLfu = 2,
  kCustomized = 3,
  kDecayingLfu = 4
};

// How the scores of one table are made.
struct ScoreRule {
  ScorePolicy policy;
  uint32_t halflife;  // lookups, kDecayingLfu only

  DYNEMB_HD ScoreRule(ScorePolicy policy, uint32_t halflife = 0)  // NOLINT: a policy is enough
      : policy(policy), halflife(halflife) {}
};

// All ids of one table share this in a lookup.
struct Touch {
  uint64_t clock;
  uint64_t given;  // kCustomized: of core/custom_score.h, with kCustomScoreBit; kDecayingLfu:
                   // pack_weight
};

constexpr uint64_t kEmptyScore = 0;
constexpr uint64_t kPinBit = uint64_t{1} << 62;
constexpr uint64_t kHighScoreLimit = 0x3fffffffu;  // what fits above the clock, below kPinBit

// Do new rows, and those that a lookup finds, take more than the clock?
DYNEMB_HD bool takes_more_than_clock(ScorePolicy policy) { return policy >= ScorePolicy::kLfu; }

DYNEMB_HD bool is_packed(ScorePolicy policy) {
  return takes_more_than_clock(policy) && policy != ScorePolicy::kCustomized;
}

DYNEMB_HD bool is_pinned(uint64_t score) { return (score & kPinBit) != 0; }
DYNEMB_HD uint64_t without_pin(uint64_t score) { return score & ~kPinBit; }

// Returns the part above the clock.
DYNEMB_HD uint64_t high_of(uint64_t score) { return score >> 32 & kHighScoreLimit; }

// A count of uses ends at kMostUses. One addition is at most kMostAdded. So the threads that a
// device runs at a time, fewer than 2^19, do not reach kPinBit if all of them add before one of
// them takes off what is too much.
constexpr uint64_t kMostUses = uint64_t{1} << 29;
constexpr uint64_t kMostAdded = 1 << 10;

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

// Returns the bits of a score that hold the clock.
DYNEMB_HD uint64_t clock_bits(ScorePolicy policy) {
  return is_packed(policy) ? 0xffffffffu : ~kPinBit;
}

// Was the row used by the lookup with this clock?
DYNEMB_HD bool is_touched(ScorePolicy policy, uint64_t score, uint64_t clock) {
  return ((score ^ clock) & clock_bits(policy)) == 0;
}

// Returns the units of the clock between the last use of a row and the latest lookup. A packed
// score holds 32 bits of the clock, and the difference wraps as they do.
DYNEMB_HD uint64_t age_of(ScorePolicy policy, uint64_t score, uint64_t clock) {
  if (is_packed(policy)) return static_cast<uint32_t>(clock) - static_cast<uint32_t>(score);
  score = without_pin(score);
  return score < clock ? clock - score : 0;
}

// The score of a row that has just been stored, before any of its occurrences is counted.
DYNEMB_HD uint64_t first_score(ScorePolicy policy, uint64_t clock) {
  return is_packed(policy) ? pack_score(0, clock) : clock;
}

// A score that a caller brings; the row stays pinned.
DYNEMB_HD void rescore(uint64_t* address, uint64_t score) {
  *address = without_pin(score) | (*address & kPinBit);
}

// ---- decaying counts ----------------------------------------------------------------------------

constexpr uint32_t kUse = 256;

// What a use counts that comes `passed` lookups after the begin of an epoch: kUse * 2^(passed /
// halflife), by a parabola through the ends that is at most 0.3 % off.
DYNEMB_HD uint32_t weight_of(uint32_t passed, uint32_t halflife) {
  auto const phase = static_cast<uint32_t>(uint64_t{passed} * kUse / halflife);
  return kUse + phase - (phase * (kUse - phase) * 88 >> 16);
}

// Returns the lookups of the epoch of this clock that came before it.
DYNEMB_HD uint32_t passed_of(uint64_t clock, uint32_t halflife) {
  auto const low = static_cast<uint32_t>(clock);
  return low == clock ? low % halflife : static_cast<uint32_t>(clock % halflife);
}

// Returns the epochs between the last use of a row and a clock with `passed` lookups of its epoch
// before it.
DYNEMB_HD uint32_t epochs_since(uint64_t score, uint64_t clock, uint32_t passed,
                                uint32_t halflife) {
  auto const age = static_cast<uint32_t>(clock) - static_cast<uint32_t>(score);  // wraps
  return age <= passed ? 0 : (age - passed - 1) / halflife + 1;
}

DYNEMB_HD uint64_t halved(uint64_t high, uint32_t times) { return times < 32 ? high >> times : 0; }

// Ranks rows with decaying counts in order of eviction, the first one lowest; below 2^63 - 2. Two
// scores have one rank only if their counts weigh the same; never 0.
DYNEMB_HD uint64_t decaying_rank(uint64_t score, uint64_t clock, uint32_t passed,
                                 uint32_t halflife) {
  auto high = high_of(score);
  if (high == 0) return 1;
  // The rank is a floating-point number: the exponent, then the digits below the first one.
  uint64_t exponent = (uint64_t{1} << 32) + 32;
  for (int step = 16; step > 0; step /= 2) {
    if (high >> (32 - step) != 0) continue;
    high <<= step;
    exponent -= static_cast<uint64_t>(step);
  }
  exponent -= epochs_since(score, clock, passed, halflife);
  return exponent << 30 | (high & 0x7fffffffu) >> 1;
}

// Makes the number of Touch::given.
DYNEMB_HD uint64_t pack_weight(uint64_t clock, uint32_t halflife) {
  auto const passed = passed_of(clock, halflife);
  return uint64_t{passed} << 32 | weight_of(passed, halflife);
}

DYNEMB_HD Touch touch_of(ScoreRule const& rule, uint64_t clock, uint64_t given) {
  return {clock,
          rule.policy == ScorePolicy::kDecayingLfu ? pack_weight(clock, rule.halflife) : given};
}

// ---- uses ---------------------------------------------------------------------------------------

DYNEMB_HD uint64_t pack_uses(uint64_t count, uint64_t clock) {
  return pack_score(count < kMostUses ? count : kMostUses, clock);
}

// What `uses` more occurrences make of a packed score.
DYNEMB_HD uint64_t next_score(ScoreRule const& rule, uint64_t score, Touch const& use,
                              uint32_t uses) {
  auto const high = high_of(score);
  auto const pin = score & kPinBit;
  if (rule.policy == ScorePolicy::kLfu) return pin | pack_uses(high + uses, use.clock);
  auto const passed = static_cast<uint32_t>(use.given >> 32);
  auto const epochs = epochs_since(score, use.clock, passed, rule.halflife);
  auto const more = uint64_t{uses} * static_cast<uint32_t>(use.given);
  return pin | pack_uses(halved(high, epochs) + more, use.clock);
}

// What a use adds to the count of a row that this lookup has marked already.
DYNEMB_HD uint64_t count_of(ScoreRule const& rule, Touch const& use, uint32_t uses) {
  if (rule.policy == ScorePolicy::kLfu) return uses;
  return uint64_t{uses} * static_cast<uint32_t>(use.given);
}

// Marks the row as used, as often as `uses` says; 0 marks it all the same. Any number of threads
// may touch one slot at the same time; the result does not depend on their order.
DYNEMB_HD void touch(uint64_t* address, ScoreRule const& rule, Touch const& use,
                     uint32_t uses = 1) {
  auto seen = atomic_load(address);
  if (!is_packed(rule.policy)) {
    auto const wanted = use.clock | (seen & kPinBit);
    if (seen != wanted) atomic_store(address, wanted);  // duplicates need not all store
    return;
  }
  for (;;) {
    if (is_touched(rule.policy, seen, use.clock)) {
      // Marked already: only the count moves. At its limit it stays, whatever other threads add.
      if (high_of(seen) >= kMostUses) return;
      auto const more = count_of(rule, use, uses);
      if (more <= kMostAdded) {
        // An addition cannot fail, however many meet here. Each one that passes the limit is
        // followed by a return to it.
        auto const before = fetch_add(address, more << 32);
        if (high_of(before) + more > kMostUses) {
          store_min(address, (before & kPinBit) | pack_uses(kMostUses, use.clock));
        }
        return;
      }
    }
    auto const wanted = next_score(rule, seen, use, uses);
    if (wanted == seen) return;
    auto const found = compare_and_swap(address, seen, wanted);
    if (found == seen) return;
    seen = found;
  }
}

}  // namespace dynemb
