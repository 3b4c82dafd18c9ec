// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/lookup.h: a training lookup, id by id, in the phases that core/README.md describes.
//
// - probe: present keys are found (core/find.h) and touched (core/score.h), the others are missing;
// - claim: missing keys take slots (core/claim.h): empty ones, and the winner writes the score;
//   in full buckets those of evicted rows, or of other new keys;
// - store: what a full bucket has brought in is written: key, digest and score;
// - resolve: every id that was missing reads the result of its claim. The winner of an empty slot
//   writes the digest; the row of a new key gets its first values.
//
// Most keys find an empty slot: all but the digest is written as they take it. Where one group has
// all new keys of a full bucket (core/full_bucket.h), it stores them as it claims.
//
// All ids of a phase may run at the same time; a phase starts when the one before has ended. Empty
// slots may also be claimed while others still probe (core/README.md); full buckets may not.
#pragma once

#include <cstdint>

#include "core/claim.h"
#include "core/feature_ref.h"
#include "core/find.h"
#include "core/macros.h"
#include "core/slot.h"
#include "core/table_ref.h"

namespace dynemb {

// What an id has won for its key, first of all that bring it.
enum Won : uint8_t {
  kNotWon = 0,
  kEmptySlot = 1,
  kFullBucket = 2,  // the slot of a row, or what another new key had taken
  kUndecided = 3,   // its bucket is full, and no row has been chosen for eviction yet
  kCounted = 4,     // its table's rule has to admit it first
  kCounting = 8,    // a flag beside what it has won in a counter of keys
};

struct Pending {
  int32_t slot;  // pending(...), kMissingSlot or kRefusedSlot
  Won won;
};

// Takes an empty slot, if there is one; else the key is still missing, and claim_full decides.
// `from`: claim_empty.
DYNEMB_HD Pending claim_empty_slot(TableRef const& table, Key key, uint64_t clock, int from = 0) {
  auto const hash = hash_key(key, table.hash);
  auto const bucket = local_bucket_of(table, hash);
  auto const result = claim_empty(bucket_at(table, bucket), key, hash, from);
  if (result.place < 0) return {kMissingSlot, kNotWon};
  auto const slot = static_cast<int32_t>(bucket * kBucketCapacity + result.place);
  if (!result.won) return {pending(slot), kNotWon};
  // Any key that displaces this one would write the same.
  atomic_store(score_at(table, slot), first_score(table.policy, clock));
  begin_custom_score(table, bucket_at(table, bucket), result.place);
  return {pending(slot), kEmptySlot};
}

// `evicted`: the score of the row that loses its slot by this claim; it has its key until
// store_key. Unchanged if none does. `leaving`: as AllLeave.
template <class Leaving = AllLeave>
DYNEMB_HD Pending claim_missing(TableRef const& table, Key key, Touch const& use, uint64_t* evicted,
                                Leaving const& leaving = {}) {
  auto const claimed = claim_empty_slot(table, key, use.clock);
  if (claimed.slot != kMissingSlot) return claimed;
  auto const hash = hash_key(key, table.hash);
  auto const bucket = local_bucket_of(table, hash);
  auto const ranking = Ranking(table, use);
  auto const result = claim_full(ranking, table.hash, bucket_at(table, bucket), key, hash, leaving);
  if (result.place < 0) return {kRefusedSlot, kNotWon};
  if (result.evicted != kEmptyScore) *evicted = result.evicted;
  auto const slot = static_cast<int32_t>(bucket * kBucketCapacity + result.place);
  return {pending(slot), result.won ? kFullBucket : kNotWon};
}

// Overwrites the key that had the slot before. Bit 63 of the hash does not matter.
DYNEMB_HD void bring_in(Bucket const& bucket, int place, Key key, uint64_t hash, uint64_t score) {
  auto* const entry = bucket.entries + place;
  atomic_store(&entry->key, key);
  bucket.digests[place] = digest_of(hash);
  atomic_store(&entry->score, score);
}

// Called once for each claim that has won kFullBucket. Returns whether a row was evicted. A key of
// higher rank may have taken the slot after this one had claimed it: then its claim stands there,
// or its key and score already.
DYNEMB_HD bool store_key(TableRef const& table, Key key, int32_t pending_slot, uint64_t clock) {
  auto const slot = pending(pending_slot);  // its own inverse
  auto const bucket = bucket_at(table, slot / kBucketCapacity);
  auto const place = slot % kBucketCapacity;
  auto const hash = hash_key(key, table.hash);
  auto const* const entry = bucket.entries + place;
  if (atomic_load(&entry->score) == mark_of(hash)) {
    bring_in(bucket, place, key, hash, first_score(table.policy, clock));
    begin_custom_score(table, bucket, place);
    return true;
  }
  // The slot was empty: only the digest is missing.
  if (atomic_load(&entry->key) == key) bucket.digests[place] = digest_of(hash);
  return false;
}

struct Resolved {
  int32_t slot;
  bool is_new;  // this id has inserted the key: its row needs first values
};

DYNEMB_HD Resolved resolve(TableRef const& table, Key key, Pending const& claimed, Touch const& use,
                           uint32_t uses = 1) {
  if (!is_pending(claimed.slot)) return {claimed.slot, claimed.won != kNotWon};
  auto const slot = pending(claimed.slot);
  if (claimed.won == kEmptySlot) {
    // A full bucket has given the slot to another new key. (The key says the same, on another
    // line.)
    if (*digest_at(table, slot) != 0) return {kRefusedSlot, false};
    *digest_at(table, slot) = digest_of(hash_key(key, table.hash));
  } else if (*key_at(table, slot) != key) {
    return {kRefusedSlot, false};
  }
  // Scores that are not packed are the clock already, or will be when this phase ends.
  if (takes_more_than_clock(table.policy)) {
    if (is_packed(table.policy)) {
      touch(score_at(table, slot), score_rule(table), use, uses);
    } else {
      raise_to(custom_score_at(table, slot), use.given);
    }
  }
  return {slot, claimed.won != kNotWon};
}

}  // namespace dynemb
