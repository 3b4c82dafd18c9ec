// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/claim.h: unseen keys take slots of their bucket, without locks, and always the same keys
// win.
//
// A claim is one compare-and-swap of a word of the slot, which then names the key that holds it:
//   the key, where the slot was empty when the phase began (its digest is 0);
//   the score, where it has a row: now a mark, bit 63 and the low 63 bits of the new key's hash.
//   The hash is a bijection and two hashes that differ in bit 63 alone lie in different buckets of
//   a table with two or more, so within a bucket a mark names exactly one key.
// Many threads that bring the same unseen key recognise each other's claim and end with one slot.
//
// The slots of a bucket are ranked, the first to be taken first:
//   empty slots, those of the key's own quarter first (core/find.h), in order of place;
//   rows not used by this lookup, by score, then by key (only if the table evicts, and where new
//   keys compete only rows of a lower score than theirs); rows of a customized table by the score
//   that was given, then by the clock, then by key, so of equal scores the older is the lower;
//   slots claimed in this phase, the key with the largest mark first, and only by a smaller mark;
//   rows used by this lookup: never.
// A claim always takes the first in rank, and its rank is later afterwards. Ranks never fall, which
// gives two things: a stale view can only make the swap fail, so no key gets two slots; and
// whatever the order of the threads, the bucket ends with the same set of keys.
//
// Digests do not change in this phase, nor does the key of any row; the next ones write them
// (core/lookup.h).
//
// claim_empty may therefore run beside probes and touches of the same lookup. It writes slots with
// digest 0 only, in which such a probe must find nothing, whatever the key. A key that is missing
// for one probe is missing for all. claim_full has to wait for all of them: it compares scores, and
// a row that is touched too late would have been evicted.
#pragma once

#include <cstdint>

#include "core/atomic.h"
#include "core/custom_score.h"
#include "core/departures.h"
#include "core/find.h"
#include "core/macros.h"
#include "core/table_ref.h"

namespace dynemb {

constexpr uint64_t kMarkBit = uint64_t{1} << 63;
constexpr uint64_t kNothing = ~uint64_t{0};  // larger than any place, score or key in a minimum

DYNEMB_HD uint64_t mark_of(uint64_t hash) { return hash | kMarkBit; }
DYNEMB_HD bool is_mark(uint64_t score) { return (score & kMarkBit) != 0; }

struct Claim {
  int place;                       // in the bucket; -1 = refused
  bool won;                        // by this caller, not by another thread with the same key
  uint64_t evicted = kEmptyScore;  // the score of the row that had the slot, if it was a row
};

struct Victim {
  int place;      // -1 = none
  uint64_t seen;  // in its claim_word: the value to swap
};

DYNEMB_HD bool was_empty(Bucket const& bucket, int place) { return bucket.digests[place] == 0; }

// What a claim of this slot swaps, for the key or for its mark.
DYNEMB_HD uint64_t* claim_word(Bucket const& bucket, int place) {
  auto* const entry = bucket.entries + place;
  return was_empty(bucket, place) ? &entry->key : &entry->score;
}

// When a slot of a full bucket goes: the lower, the sooner. Two slots of one rank are rows; see
// Ranking::is_before.
constexpr uint64_t kLastRankOfRows = (uint64_t{1} << 63) - 2;
constexpr uint64_t kNeverGoes = kNothing;

// A mark takes a slot of lower rank only.
DYNEMB_HD uint64_t rank_of_mark(uint64_t mark) { return ~mark + kLastRankOfRows + 1; }
DYNEMB_HD uint64_t mark_of_rank(uint64_t rank) { return ~(rank - kLastRankOfRows - 1); }

// The score that a row needs to stay, whatever the clock says; a pinned row has it. Where new keys
// compete, it is what one use makes of a new row: how often the lookup has the key is not known
// yet.
DYNEMB_HD uint64_t staying_score(TableRef const& table, Touch const& use) {
  if (table.evicts == kRefuses) return 0;
  if (table.policy == ScorePolicy::kCustomized) {
    return table.evicts == kEvicts ? kPinBit
                                   : custom_score_of(use.given) + 1;  // equal ones are older
  }
  if (table.evicts == kEvicts || !is_packed(table.policy)) {
    return table.policy == ScorePolicy::kDecayingLfu ? kMarkBit : kPinBit;
  }
  return next_score(score_rule(table), first_score(table.policy, use.clock), use, 1);
}

// Of the slots of one table in one lookup; what all have in common is read once.
struct Ranking {
  uint64_t clock;
  uint64_t bits;
  uint64_t stays;
  // Of a score alone, or of what else it says.
  enum class By : uint32_t { kScore, kDecayingCount, kCustomScore } by = By::kScore;
  uint32_t halflife = 0;
  uint32_t passed = 0;

  DYNEMB_HD Ranking(uint64_t clock, uint64_t bits, uint64_t stays)
      : clock(clock), bits(bits), stays(stays) {}

  DYNEMB_HD Ranking(TableRef const& table, Touch const& use)
      : Ranking(use.clock, clock_bits(table.policy), staying_score(table, use)) {
    if (table.policy == ScorePolicy::kCustomized) by = By::kCustomScore;
    if (table.policy != ScorePolicy::kDecayingLfu) return;
    by = By::kDecayingCount;
    halflife = table.halflife;
    passed = static_cast<uint32_t>(use.given >> 32);
    if (table.evicts == kCompetes) stays = decaying_rank(stays, clock, passed, halflife);
  }

  // Of a row, unless it was given a score. Of all tables but few without branches: a lane has
  // several.
  DYNEMB_HD uint64_t of_score(uint64_t score) const {
    if (by == By::kDecayingCount) return of_decaying(score);
    auto const goes =
        static_cast<int>(score < stays) & static_cast<int>(((score ^ clock) & bits) != 0);
    return goes != 0 ? score - 1 : kNeverGoes;
  }

  // `bucket` and `place`: of the row.
  DYNEMB_HD uint64_t of_row(uint64_t score, Bucket const& bucket, int place) const {
    return by == By::kCustomScore ? of_custom_score(score, bucket, place) : of_score(score);
  }

  DYNEMB_HD uint64_t of_custom_score(uint64_t score, Bucket const& bucket, int place) const {
    auto const given = atomic_load(custom_scores(bucket) + place);
    auto const goes = given < stays && !is_pinned(score) && ((score ^ clock) & bits) != 0;
    return goes ? given : kNeverGoes;
  }

  DYNEMB_HD uint64_t of_decaying(uint64_t score) const {
    if (is_pinned(score) || is_touched(ScorePolicy::kDecayingLfu, score, clock)) return kNeverGoes;
    auto const rank = decaying_rank(score, clock, passed, halflife);
    return rank < stays ? rank : kNeverGoes;
  }

  DYNEMB_HD uint64_t of(uint64_t score, Bucket const& bucket, int place) const {
    return is_mark(score) ? rank_of_mark(score) : of_row(score, bucket, place);
  }

  // Of two rows of one rank, which goes first? Their scores tell apart only those that were given.
  DYNEMB_HD bool is_before(Entry const& a, Entry const& b) const {
    if (by == By::kCustomScore && a.score != b.score) return a.score < b.score;
    return a.key < b.key;
  }
};

// An empty slot is looked for pair by pair: the entries of a pair are a sector of a GPU's memory.
// The order is the key's own: quarter by quarter, the preferred one first.
constexpr int kPairs = kBucketCapacity / 2;

DYNEMB_HD int nearest_pair(uint64_t hash) { return preferred_quarter(hash) * (kPairs / 4); }

// The first from number `i` of a key's order on with a slot that was empty when the phase began;
// kPairs if there is none. May name one behind such a slot that has none itself.
DYNEMB_HD int next_free_pair(Bucket const& bucket, uint64_t hash, int i) {
  auto const* const words = reinterpret_cast<uint64_t const*>(bucket.digests);
  auto const nearest = nearest_pair(hash);
  uint64_t empty = 0;
  for (; i < kPairs; i = (i | 3) + 1) {
    empty = equal_bytes(words[(i ^ nearest) / 4], 0) >> i % 4 * 16;
    if (empty != 0) break;
  }
  return empty == 0 ? kPairs : i + lowest_byte(empty) / 2;
}

// Of two slots the first empty one, or the one that the key has already (`seen` is then the key).
DYNEMB_HD Victim find_empty(Bucket const& bucket, int pair, Key key) {
  auto const first = pair * 2;
  Key const seen[2] = {atomic_load(&bucket.entries[first].key),
                       atomic_load(&bucket.entries[first + 1].key)};
  auto own = -1, empty = -1;
  for (int i = 1; i >= 0; --i) {
    if (!was_empty(bucket, first + i)) continue;
    if (seen[i] == key) own = first + i;
    if (seen[i] == kEmptyKey) empty = first + i;
  }
  if (own >= 0) return {own, key};
  return {empty, kEmptyKey};
}

// What to take in a bucket without empty slots, or the place that the key has already (its
// claim_word is then the key's own). It looks once: a key that another thread brings in between two
// looks would be seen by neither, and get a second slot. `leaving`: as AllLeave.
template <class Leaving>
DYNEMB_HD Victim find_victim(Ranking const& ranking, HashFactors factors, Bucket const& bucket,
                             uint64_t mark, Leaving const& leaving) {
  auto lowest = kNeverGoes;
  Victim first{-1, kEmptyScore};
  for (int place = 0; place < kBucketCapacity; ++place) {
    auto const word = atomic_load(claim_word(bucket, place));
    auto const score = was_empty(bucket, place) ? mark_of(hash_key(word, factors)) : word;
    if (score == mark) return {place, word};
    auto const rank = ranking.of(score, bucket, place);
    // A mark is the only one of its rank.
    auto const is_tie = rank == lowest && rank <= kLastRankOfRows;
    if (rank >= lowest &&
        !(is_tie && ranking.is_before({bucket.entries[place].key, word},
                                      {bucket.entries[first.place].key, first.seen}))) {
      continue;
    }
    if (rank <= kLastRankOfRows && leaving.stays(place)) continue;
    lowest = rank;
    first = {place, word};
  }
  if (lowest >= rank_of_mark(mark)) return {-1, kEmptyScore};
  return first;
}

// Swaps what was seen of a slot for `own`. Returns whether the slot is the caller's key's now, and
// whether by this swap.
enum class Swapped { kNo, kAlready, kNow };

DYNEMB_HD Swapped swap_in(uint64_t* word, uint64_t seen, uint64_t own) {
  if (seen == own) return Swapped::kAlready;
  auto const found = compare_and_swap(word, seen, own);
  if (found == seen) return Swapped::kNow;
  return found == own ? Swapped::kAlready : Swapped::kNo;
}

// Precondition of both: the key is not in the bucket.

// Takes an empty slot. place < 0: the bucket has none, so that claim_full decides; it never has one
// again in this phase. `from`: a number of the key's order, with no empty slot before it.
//
// A key looks at slots always in the same order and takes the first empty one, and none becomes
// empty again: so its own slot comes before those that it finds empty, and the search ends there.
DYNEMB_HD Claim claim_empty(Bucket const& bucket, Key key, uint64_t hash, int from = 0) {
  auto pair = next_free_pair(bucket, hash, from);
  while (pair < kPairs) {
    auto const slot = find_empty(bucket, pair ^ nearest_pair(hash), key);
    if (slot.place < 0) {  // taken by now
      pair = next_free_pair(bucket, hash, pair + 1);
      continue;
    }
    auto const swapped = swap_in(&bucket.entries[slot.place].key, slot.seen, key);
    if (swapped != Swapped::kNo) return {slot.place, swapped == Swapped::kNow};
  }
  return {-1, false};
}

// Takes the slot of a row that may be evicted, or of a new key with a larger mark. place < 0: the
// key is refused. Precondition: the lookup of the ranking has touched every row that it uses. A
// group that has all new keys of the bucket decides for them together: core/full_bucket.h.
// `leaving`: as AllLeave. Where rows depart, no other thread claims in the bucket meanwhile: the
// swap succeeds.
template <class Leaving = AllLeave>
DYNEMB_HD Claim claim_full(Ranking const& ranking, HashFactors factors, Bucket const& bucket,
                           Key key, uint64_t hash, Leaving leaving = {}) {
  auto const mark = mark_of(hash);
  for (;;) {
    auto const victim = find_victim(ranking, factors, bucket, mark, leaving);
    if (victim.place < 0) return {-1, false};
    auto const is_row = !is_mark(victim.seen) && !was_empty(bucket, victim.place);
    if (is_row) {
      auto const row = Entry{bucket.entries[victim.place].key, victim.seen};
      if (!leaving.leaves(victim.place, row)) continue;
    }
    auto const own = was_empty(bucket, victim.place) ? key : mark;
    auto const swapped = swap_in(claim_word(bucket, victim.place), victim.seen, own);
    if (swapped == Swapped::kNo) continue;
    auto const evicts = swapped == Swapped::kNow && is_row;
    return {victim.place, swapped == Swapped::kNow, evicts ? victim.seen : kEmptyScore};
  }
}

}  // namespace dynemb
