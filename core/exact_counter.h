// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/exact_counter.h: how often ids without a row have occurred, counted by key.
//
// The counter is an index without rows: buckets of 128 slots as those of a table, so many for each
// bucket of the table. They lie where that bucket lies, on any number of devices. The score of a
// key is the number of the latest lookup that had it, and its count in the low half:
//   lookup << 32 | count
// So a full bucket forgets the key that has not occurred for the longest time. While none is
// forgotten, the counts are exact. They stop at the threshold.
//
// A lookup counts in phases, each over all missing ids. As in core/claim.h the result does not
// depend on threads:
// - begin: keys that are counted already are found and touched, others claim empty slots;
// - claim: in full buckets they claim those of forgotten keys, or of other new ones;
// - store: what a full bucket has brought in is written;
// - add: the occurrences of new keys are counted;
// - decide: a key at the threshold is admitted, and leaves the counter.
// A key that finds no slot, since the lookup has more of them than its bucket, is not counted.
#pragma once

#include <cstdint>

#include "core/admission.h"
#include "core/claim.h"
#include "core/lookup.h"
#include "core/slot.h"

namespace dynemb {

constexpr int kWordsOfBucket = kBucketBytes / 4;

// Counts one key in the counter of its table. Slots are numbered as in a table.
class KeyCounter {
 public:
  // `lookup`: the number of this training lookup, counted from 1.
  DYNEMB_HD KeyCounter(TableRef const& table, Admission const& admission, uint64_t lookup, Key key)
      : key_(key),
        factors_(table.hash),
        hash_(hash_key(key, table.hash)),
        now_((lookup % 0x3fffffffu + 1) << 32),
        threshold_(admission.threshold),
        counts_lookups_(admission.rule == AdmissionRule::kLookups),
        index_(reinterpret_cast<uint8_t*>(admission.sketch)) {
    auto const of_each = static_cast<uint32_t>(admission.sketch_words / kWordsOfBucket);
    auto const local = static_cast<uint32_t>(table.local_buckets) * of_each;
    auto const number = bucket_of(hash_, table.num_buckets * of_each);
    number_ = static_cast<uint32_t>(number) % local;
  }

  // Returns the slot of a key that is counted already, or pending(slot) of an empty one.
  // kMissingSlot says that the bucket is full. Other groups may begin at the same time.
  DYNEMB_HD Pending begin(uint32_t uses) const {
    auto const bucket = own_bucket();
    auto const place = find(bucket);
    if (place >= 0) {
      add_to(&bucket.entries[place].score, uses);
      return {slot_of(place), kNotWon};
    }
    auto const result = claim_empty(bucket, key_, hash_);
    if (result.place < 0) return {kMissingSlot, kUndecided};
    // Any key that displaces this one would write the same.
    if (result.won) atomic_store(&bucket.entries[result.place].score, now_);
    return {pending(slot_of(result.place)), result.won ? kEmptySlot : kNotWon};
  }

  // Only if the bucket was full when all had begun.
  DYNEMB_HD Pending claim() const {
    constexpr auto kClockBits = ~uint64_t{0} << 32;
    auto const ranking = Ranking(now_, kClockBits, kMarkBit);
    auto const result = claim_full(ranking, factors_, own_bucket(), key_, hash_);
    if (result.place < 0) return {kRefusedSlot, kNotWon};
    return {pending(slot_of(result.place)), result.won ? kFullBucket : kNotWon};
  }

  // Once for each claim that has won kFullBucket; see store_key in core/lookup.h.
  DYNEMB_HD void store(int32_t pending_slot) const {
    auto const bucket = own_bucket();
    auto const place = pending(pending_slot) % kBucketCapacity;
    auto const& entry = bucket.entries[place];
    if (atomic_load(&entry.score) == mark_of(hash_)) {
      bring_in(bucket, place, key_, hash_, now_);
    } else if (atomic_load(&entry.key) == key_) {
      bucket.digests[place] = digest_of(hash_);
    }
  }

  // Returns the slot of the key, or kRefusedSlot. Counts what `begin` has not counted.
  DYNEMB_HD int32_t add(Pending const& claimed, uint32_t uses) const {
    if (!is_pending(claimed.slot)) return claimed.slot;
    auto const bucket = own_bucket();
    auto const place = pending(claimed.slot) % kBucketCapacity;
    auto* const entry = bucket.entries + place;
    if (atomic_load(&entry->key) != key_) return kRefusedSlot;
    if (claimed.won == kEmptySlot) bucket.digests[place] = digest_of(hash_);
    add_to(&entry->score, uses);
    return slot_of(place);
  }

  // Whether the key is admitted. Then it is not counted any more; counts of others stay.
  DYNEMB_HD bool decide(int32_t slot) const {
    if (slot < 0) return false;
    auto const bucket = own_bucket();
    auto const place = slot % kBucketCapacity;
    auto* const entry = bucket.entries + place;
    if (static_cast<uint32_t>(atomic_load(&entry->score)) < threshold_) return false;
    // The score stays: others with the key may still compare it.
    if (compare_and_swap(&entry->key, key_, kEmptyKey) == key_) bucket.digests[place] = 0;
    return true;
  }

 private:
  DYNEMB_HD Bucket own_bucket() const {
    auto* const base = index_ + int64_t{number_} * kBucketBytes;
    return {base, reinterpret_cast<Entry*>(base + kEntriesOffset)};
  }

  DYNEMB_HD int32_t slot_of(int place) const {
    return static_cast<int32_t>(number_ * kBucketCapacity) + place;
  }

  // Candidates may name a digest beside an equal one: that of an empty slot does not count, in
  // which another id may be writing the key.
  DYNEMB_HD int find(Bucket const& bucket) const {
    auto place = next_candidate(bucket, hash_, 0);
    while (place < kBucketCapacity) {
      if (!was_empty(bucket, place) && atomic_load(&bucket.entries[place].key) == key_) {
        return place;
      }
      place = next_candidate(bucket, hash_, place + 1);
    }
    return -1;
  }

  // What one more id makes of a score.
  DYNEMB_HD uint64_t more(uint64_t score, uint32_t uses) const {
    auto const count = static_cast<uint32_t>(score);
    auto const is_now = score >> 32 == now_ >> 32;
    if (counts_lookups_) uses = is_now && count > 0 ? 0 : 1;
    auto const room = count < threshold_ ? threshold_ - count : 0;
    return now_ | (count + (uses < room ? uses : room));
  }

  DYNEMB_HD void add_to(uint64_t* score, uint32_t uses) const {
    auto seen = atomic_load(score);
    for (;;) {
      auto const wanted = more(seen, uses);
      if (wanted == seen) return;
      auto const found = compare_and_swap(score, seen, wanted);
      if (found == seen) return;
      seen = found;
    }
  }

  Key key_;
  HashFactors factors_;
  uint64_t hash_;
  uint64_t now_;  // the score of a key without a count
  uint32_t threshold_;
  bool counts_lookups_;
  uint8_t* index_;
  uint32_t number_;  // of the key's bucket
};

}  // namespace dynemb
