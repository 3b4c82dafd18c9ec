// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/custom_score.h: the scores that users give to the rows of a customized table.
//
// A score has 62 bits, and so there is no room for a clock beside it. It stands behind the entries
// of its bucket, [128] of 64 bits each, and the entry has the clock alone, as with kStep. So the
// last use of a row (for deltas, ages, and evictions, which pass over the rows of a batch) is read
// from the entry. The rank of a row is read from both: a full bucket evicts by custom score, then
// by clock, then by key.
//
// A lookup gives all its rows one score, or each id its own, or none: then rows that are there keep
// theirs. A new row begins with 0. Of the ids of one row the highest score counts, whatever it was
// before. So a lookup with scores of ids first takes those of its rows away, while it touches them,
// and raises them when all are touched (raise_custom_score); a new row has no other score, and is
// raised at once. The order of threads does not matter.
#pragma once

#include <cstdint>

#include "core/atomic.h"
#include "core/feature_ref.h"
#include "core/macros.h"
#include "core/slot.h"
#include "core/table_ref.h"

namespace dynemb {

// Of the number that comes with a table or an id. Without it nothing is given.
constexpr uint64_t kCustomScoreBit = uint64_t{1} << 63;
constexpr uint64_t kMaxCustomScore = (uint64_t{1} << 62) - 1;

DYNEMB_HD bool has_custom_score(uint64_t word) { return (word & kCustomScoreBit) != 0; }

// The score of such a number; 0 where there is none.
DYNEMB_HD uint64_t custom_score_of(uint64_t word) {
  auto const score = word & ~kCustomScoreBit;
  return !has_custom_score(word) ? 0 : score < kMaxCustomScore ? score : kMaxCustomScore;
}

// Only buckets of customized tables have custom scores, behind their entries.
DYNEMB_HD uint64_t* custom_scores(Bucket const& bucket) {
  return reinterpret_cast<uint64_t*>(bucket.entries + kBucketCapacity);
}

DYNEMB_HD uint64_t* custom_score_at(TableRef const& table, int32_t slot) {
  return custom_scores(bucket_at(table, slot / kBucketCapacity)) + slot % kBucketCapacity;
}

// The score of a row without its pin, as a caller sees it: the custom one, if the table has such.
DYNEMB_HD uint64_t seen_score(TableRef const& table, int32_t slot) {
  if (table.policy == ScorePolicy::kCustomized) return *custom_score_at(table, slot);
  return without_pin(*score_at(table, slot));
}

// A score that a caller brings from outside; the row stays pinned.
DYNEMB_HD void bring_score(TableRef const& table, int32_t slot, uint64_t score) {
  if (table.policy != ScorePolicy::kCustomized) return rescore(score_at(table, slot), score);
  *custom_score_at(table, slot) = score < kMaxCustomScore ? score : kMaxCustomScore;
}

// A key gets a slot.
DYNEMB_HD void begin_custom_score(TableRef const& table, Bucket const& bucket, int place) {
  if (table.policy == ScorePolicy::kCustomized) atomic_store(custom_scores(bucket) + place, 0);
}

DYNEMB_HD void raise_to(uint64_t* address, uint64_t word) {
  if (atomic_load(address) < custom_score_of(word)) store_max(address, custom_score_of(word));
}

// A row that a lookup has found. `of_id`: the score is that of one id. Duplicates need not all
// store.
DYNEMB_HD void touch_custom_score(TableRef const& table, int32_t slot, Touch const& use,
                                  bool of_id) {
  touch(score_at(table, slot), score_rule(table), use);
  if (!has_custom_score(use.given)) return;
  auto const score = of_id ? 0 : custom_score_of(use.given);
  auto* const address = custom_score_at(table, slot);
  if (atomic_load(address) != score) atomic_store(address, score);
}

// Reads a score of an id. Scores stand behind the counts: [num_ids] low words, then [num_ids] high
// ones.
DYNEMB_HD uint64_t custom_score_of_id(uint32_t const* uses, int64_t num_ids, int64_t position) {
  return uint64_t{uses[2 * num_ids + position]} << 32 | uses[num_ids + position];
}

// After all rows of the lookup are touched.
DYNEMB_HD void raise_custom_score(TableRef const& table, FeatureRef const& feature,
                                  uint32_t const* uses, int64_t position) {
  auto const slot = feature.slots[position];
  if (slot >= 0)
    raise_to(custom_score_at(table, slot), custom_score_of_id(uses, feature.num_ids, position));
}

}  // namespace dynemb
