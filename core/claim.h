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

// Among the slots from `begin` on; what find_empty says.
template <class Group>
DYNEMB_HD Victim find_empty_of_four(Group const& group, Bucket const& bucket, int begin,
                                    uint64_t mark) {
  uint64_t own = kNothing, empty = kNothing;
  for (int place = begin + group.rank(); place < begin + 4; place += group.size()) {
    auto const score = atomic_load(bucket.scores + place);
    if (score == mark) own = static_cast<uint64_t>(place);
    if (score == kEmptyScore && empty == kNothing) empty = static_cast<uint64_t>(place);
  }
  own = group.min(own);
  if (own != kNothing) return {static_cast<int>(own), mark};
  empty = group.min(empty);
  if (empty != kNothing) return {static_cast<int>(empty), kEmptyScore};
  return {-1, kEmptyScore};
}

// The first empty place, or the place already marked for this key (its `score` is then the mark).
//
// A digest of 0 means that the slot was empty when the phase began. A key looks at such slots
// always in the same order and takes the first, and none becomes empty again: so a slot with its
// mark comes before those that it finds empty, and the search ends at the first empty one.
template <class Group>
DYNEMB_HD Victim find_empty(Group const& group, Bucket const& bucket, uint64_t mark) {
  constexpr int kWords = kBucketCapacity / 8;
  auto const* const words = reinterpret_cast<uint64_t const*>(bucket.digests);
  constexpr int kQuarter = kQuarterBucket / 8;
  auto const nearest = preferred_quarter(mark) * kQuarter;
  auto const word_of = [&](int i) { return i ^ nearest; };  // quarter by quarter
  for (int first = 0; first < kWords;) {
    // The next word with an empty digest, and then four slots, one a lane, of which one is empty:
    // the scores of four are a sector of a GPU's memory. If all are taken by now, the next four.
    uint64_t next = kNothing;
    for (int i = first + group.rank(); i < kWords && next == kNothing; i += group.size()) {
      if (equal_bytes(words[word_of(i)], 0) != 0) next = static_cast<uint64_t>(i);
    }
    next = group.min(next);
    if (next == kNothing) break;
    auto const word = word_of(static_cast<int>(next));
    auto const in_lower = static_cast<uint32_t>(equal_bytes(words[word], 0)) != 0;
    for (int begin = word * 8 + (in_lower ? 0 : 4); begin < word * 8 + 8; begin += 4) {
      auto const slot = find_empty_of_four(group, bucket, begin, mark);
      if (slot.place >= 0) return slot;
    }
    first = static_cast<int>(next) + 1;
  }
  return {-1, kEmptyScore};
}

// The scores of a full bucket that a lane looks at, as it saw them at one time.
template <class Group>
struct SeenScores {
  Group const& group;
  uint64_t score[kBucketCapacity / Group::kLeastSize];

  // All are asked for before any is compared: on a GPU one answer takes as long as all together.
  DYNEMB_HD SeenScores(Group const& group, Bucket const& bucket) : group(group) {
    DYNEMB_UNROLLED
    for (int i = 0; i < count(); ++i) score[i] = atomic_load(bucket.scores + place(i));
  }

  DYNEMB_HD int count() const { return kBucketCapacity / group.size(); }
  DYNEMB_HD int place(int i) const { return i * group.size() + group.rank(); }

  // The place of the smallest number that number(i) gives, and that number; kNothing counts as
  // none.
  template <class Function>
  DYNEMB_HD Victim smallest(Function const& number) const {
    uint64_t lowest = kNothing, lowest_place = kNothing;
    DYNEMB_UNROLLED
    for (int i = 0; i < count(); ++i) {
      auto const value = number(i);
      lowest_place = value < lowest ? static_cast<uint64_t>(place(i)) : lowest_place;
      lowest = value < lowest ? value : lowest;
    }
    auto const value = group.min(lowest);
    if (value == kNothing) return {-1, value};
    return {static_cast<int>(group.min(lowest == value ? lowest_place : kNothing)), value};
  }
};

// Of the rows with this score that with the smallest key.
template <class Group>
DYNEMB_HD Victim smallest_key(Bucket const& bucket, SeenScores<Group> const& seen, uint64_t score) {
  uint64_t keys[kBucketCapacity / Group::kLeastSize];
  DYNEMB_UNROLLED
  for (int i = 0; i < seen.count(); ++i) {
    keys[i] = seen.score[i] == score ? bucket.keys[seen.place(i)] : kNothing;
  }
  return {seen.smallest([&](int i) { return keys[i]; }).place, score};
}

// What to take in a bucket without empty slots, or the place already marked for this key (its
// `score` is then the mark); a row that may leave, or else the largest mark. It looks once: a key
// that another thread marks between two looks would be seen by neither, and get a second slot.
template <class Group>
DYNEMB_HD Victim find_victim(Group const& group, TableRef const& table, Bucket const& bucket,
                             uint64_t mark, uint64_t clock) {
  auto const policy = table.policy;
  auto const evicts = table.evicts != 0;
  auto const seen = SeenScores<Group>(group, bucket);
  uint64_t own = kNothing, lowest = kNothing;
  DYNEMB_UNROLLED
  for (int i = 0; i < seen.count(); ++i) {
    auto const score = seen.score[i];
    auto const leaves = evicts && !is_mark(score) && !is_touched(policy, score, clock);
    own = score == mark ? static_cast<uint64_t>(seen.place(i)) : own;
    lowest = leaves && score < lowest ? score : lowest;
  }
  own = group.min(own);
  if (own != kNothing) return {static_cast<int>(own), mark};
  auto const score = group.min(lowest);
  if (score != kNothing) return smallest_key(bucket, seen, score);
  auto const largest =
      seen.smallest([&](int i) { return is_mark(seen.score[i]) ? ~seen.score[i] : kNothing; });
  return {largest.place, ~largest.score};
}

// The lanes of a group agree on every decision: they decide on reduced values only, and the swap
// is made by one lane that tells the others.
template <class Group>
DYNEMB_HD uint64_t swap_together(Group const& group, uint64_t* address, uint64_t expected,
                                 uint64_t desired) {
  uint64_t seen = 0;
  if (group.rank() == 0) seen = compare_and_swap(address, expected, desired);
  return group.broadcast(seen, 0);
}

// Precondition of both: the key is not in the bucket.

// Takes an empty slot. place < 0: the bucket has none, so that claim_full decides; it never has one
// again in this phase.
template <class Group>
DYNEMB_HD Claim claim_empty(Group const& group, Bucket const& bucket, uint64_t mark) {
  for (;;) {
    auto const slot = find_empty(group, bucket, mark);
    if (slot.place < 0 || slot.score == mark) return {slot.place, false};
    auto const seen = swap_together(group, bucket.scores + slot.place, slot.score, mark);
    if (seen == slot.score) return {slot.place, true};
    if (seen == mark) return {slot.place, false};
  }
}

// Takes the slot of a row that may leave, or of a larger mark. place < 0: the key is refused.
// Precondition: the lookup whose clock this is has touched every row that it uses.
template <class Group>
DYNEMB_HD Claim claim_full(Group const& group, TableRef const& table, Bucket const& bucket,
                           uint64_t mark, uint64_t clock) {
  for (;;) {
    auto const victim = find_victim(group, table, bucket, mark, clock);
    if (victim.place >= 0 && victim.score == mark) return {victim.place, false};
    if (victim.place < 0 || (is_mark(victim.score) && victim.score < mark)) return {-1, false};
    auto const seen = swap_together(group, bucket.scores + victim.place, victim.score, mark);
    if (seen == victim.score) return {victim.place, true};
    if (seen == mark) return {victim.place, false};
  }
}

}  // namespace dynemb
