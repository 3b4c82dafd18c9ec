// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/claim.h: unseen keys take slots of their bucket, without locks, and always the same keys
// win.
//
// A claim replaces the score of a slot by a mark: bit 63 and the low 63 bits of the key's hash. The
// hash is a bijection and two hashes that differ in bit 63 alone lie in different buckets of a
// table with two or more, so within a bucket a mark names exactly one key. Many threads that bring
// the same unseen key recognise each other's mark and end with one slot.
//
// The slots of a bucket are ranked, the first to go first:
//   empty slots, those of the key's own quarter first (core/find.h), in order of place;
//   rows not used by this lookup, by score, then by key (only if the table evicts);
//   slots claimed in this phase, the largest mark first, and only by a smaller mark;
//   rows used by this lookup: never.
// A claim always takes the first in rank, by compare-and-swap on its score, and leaves it later in
// rank than it was. Ranks never fall, which gives two things: a stale view can only make the swap
// fail, so no key gets two slots; and whatever the order of the threads, the bucket ends with the
// same set of keys.
//
// Digests do not change in this phase, nor does the key of any row; the next ones write them
// (core/lookup.h). Who takes an empty slot may write its key at once: nobody looks there.
//
// claim_empty may therefore run beside probes and touches of the same lookup. It writes scores and
// keys of slots with digest 0 only, in which such a probe must find nothing, whatever the key; a
// touch writes scores of live slots only, of which neither the old nor the new one is 0 or a mark.
// A key that is missing for one probe is missing for all. claim_full has to wait for all of them:
// it compares scores, and a row that is touched too late would have left.
#pragma once

#include <cstdint>

#include "core/atomic.h"
#include "core/find.h"
#include "core/macros.h"
#include "core/table_ref.h"

namespace dynemb {

constexpr uint64_t kMarkBit = uint64_t{1} << 63;
constexpr uint64_t kNothing = ~uint64_t{0};  // larger than any place, score or key in a minimum

DYNEMB_HD uint64_t mark_of(uint64_t hash) { return hash | kMarkBit; }
DYNEMB_HD bool is_mark(uint64_t score) { return (score & kMarkBit) != 0; }

struct Claim {
  int place;  // in the bucket; -1 = refused
  bool won;   // by this caller, not by another thread with the same key
};

struct Victim {
  int place;       // -1 = none
  uint64_t score;  // as seen: the value to swap
};

// When a slot of a full bucket goes: the lower, the sooner. Two slots of one rank are rows; of them
// the smaller key goes first.
constexpr uint64_t kLastRankOfRows = (uint64_t{1} << 63) - 2;
constexpr uint64_t kNeverGoes = kNothing;

// A mark takes a slot of lower rank only.
DYNEMB_HD uint64_t rank_of_mark(uint64_t mark) { return ~mark + kLastRankOfRows + 1; }
DYNEMB_HD uint64_t mark_of_rank(uint64_t rank) { return ~(rank - kLastRankOfRows - 1); }

// Of the slots of one table in one lookup; what all have in common is read once.
struct Ranking {
  uint64_t clock;
  uint64_t bits;
  bool evicts;

  DYNEMB_HD Ranking(TableRef const& table, uint64_t clock)
      : clock(clock), bits(clock_bits(table.policy)), evicts(table.evicts != 0) {}

  // Without branches: a lane has several of each kind.
  DYNEMB_HD uint64_t of(uint64_t score) const {
    auto const goes = static_cast<int>(evicts) & static_cast<int>(((score ^ clock) & bits) != 0);
    auto const of_row = goes != 0 ? score - 1 : kNeverGoes;
    return is_mark(score) ? rank_of_mark(score) : of_row;
  }
};

// Of four slots, what find_empty says.
DYNEMB_HD Victim find_empty_of_four(Bucket const& bucket, int begin, uint64_t mark) {
  auto own = -1, empty = -1;
  for (int place = begin; place < begin + 4; ++place) {
    auto const score = atomic_load(bucket.scores + place);
    if (score == mark) own = place;
    if (score == kEmptyScore && empty < 0) empty = place;
  }
  if (own >= 0) return {own, mark};
  return {empty, kEmptyScore};
}

// The first empty place, or the place already marked for this key (its `score` is then the mark).
//
// A digest of 0 means that the slot was empty when the phase began. A key looks at such slots
// always in the same order and takes the first, and none becomes empty again: so a slot with its
// mark comes before those that it finds empty, and the search ends at the first empty one.
DYNEMB_HD Victim find_empty(Bucket const& bucket, uint64_t mark) {
  constexpr int kWords = kBucketCapacity / 8;
  constexpr int kQuarter = kQuarterBucket / 8;
  auto const* const words = reinterpret_cast<uint64_t const*>(bucket.digests);
  auto const nearest = preferred_quarter(mark) * kQuarter;
  for (int i = 0; i < kWords; ++i) {
    auto const word = i ^ nearest;  // quarter by quarter
    auto const empty = equal_bytes(words[word], 0);
    if (empty == 0) continue;
    // Four slots: their scores are a sector of a GPU's memory. If all are taken by now, the next
    // four.
    auto const in_lower = static_cast<uint32_t>(empty) != 0;
    for (int begin = word * 8 + (in_lower ? 0 : 4); begin < word * 8 + 8; begin += 4) {
      auto const slot = find_empty_of_four(bucket, begin, mark);
      if (slot.place >= 0) return slot;
    }
  }
  return {-1, kEmptyScore};
}

// What to take in a bucket without empty slots, or the place already marked for this key (its
// `score` is then the mark). It looks once: a key that another thread marks between two looks would
// be seen by neither, and get a second slot.
DYNEMB_HD Victim find_victim(TableRef const& table, Bucket const& bucket, uint64_t mark,
                             uint64_t clock) {
  auto const ranking = Ranking(table, clock);
  uint64_t scores[kBucketCapacity];
  auto lowest = kNeverGoes;
  auto first = -1;
  for (int place = 0; place < kBucketCapacity; ++place) {
    auto const score = scores[place] = atomic_load(bucket.scores + place);
    if (score == mark) return {place, mark};
    auto const rank = ranking.of(score);
    first = rank < lowest ? place : first;
    lowest = rank < lowest ? rank : lowest;
  }
  if (lowest >= rank_of_mark(mark)) return {-1, kEmptyScore};
  // Whose key it is does not matter for a mark, and its thread may be about to write it.
  if (lowest > kLastRankOfRows) return {first, scores[first]};
  for (int place = first + 1; place < kBucketCapacity; ++place) {
    if (scores[place] == scores[first] && bucket.keys[place] < bucket.keys[first]) first = place;
  }
  return {first, scores[first]};
}

// Precondition of both: the key is not in the bucket.

// Takes an empty slot. place < 0: the bucket has none, so that claim_full decides; it never has one
// again in this phase.
DYNEMB_HD Claim claim_empty(Bucket const& bucket, uint64_t mark) {
  for (;;) {
    auto const slot = find_empty(bucket, mark);
    if (slot.place < 0 || slot.score == mark) return {slot.place, false};
    auto const seen = compare_and_swap(bucket.scores + slot.place, slot.score, mark);
    if (seen == slot.score) return {slot.place, true};
    if (seen == mark) return {slot.place, false};
  }
}

// Takes the slot of a row that may leave, or of a larger mark. place < 0: the key is refused.
// Precondition: the lookup whose clock this is has touched every row that it uses. Who has all new
// keys of the bucket need not do it one by one: core/full_bucket.h.
DYNEMB_HD Claim claim_full(TableRef const& table, Bucket const& bucket, uint64_t mark,
                           uint64_t clock) {
  for (;;) {
    auto const victim = find_victim(table, bucket, mark, clock);
    if (victim.place < 0 || victim.score == mark) return {victim.place, false};
    auto const seen = compare_and_swap(bucket.scores + victim.place, victim.score, mark);
    if (seen == victim.score) return {victim.place, true};
    if (seen == mark) return {victim.place, false};
  }
}

}  // namespace dynemb
