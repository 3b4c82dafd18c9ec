// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/table_ref.h: a view of one table, owning nothing, passed by value.
#pragma once

#include <cstdint>

#include "core/hash.h"
#include "core/initializer.h"
#include "core/macros.h"
#include "core/score.h"
#include "core/value_type.h"

namespace dynemb {

constexpr int kBucketCapacity = 128;                // slots
constexpr int kBucketBytes = kBucketCapacity * 17;  // 128 digests, 128 keys, 128 scores
constexpr int kKeysOffset = kBucketCapacity;        // bytes into a bucket
constexpr int kScoresOffset = kBucketCapacity * 9;  // bytes into a bucket
constexpr int kMaxStates = 4;                       // optimizer arrays of one table

// Places in the counter array of a table, 64 bits each.
enum Counter : int32_t {
  kClock = 0,    // of the latest lookup, in the unit of the score policy
  kSeed,         // of the initial rows
  kStep,         // optimizer updates so far
  kRows,         // live rows
  kInserted,     // rows stored since the table was made
  kEvicted,      // rows replaced by another key
  kRefused,      // ids that found no place
  kLostUpdates,  // gradients whose row had left
  kLookups,      // training lookups
  kNumCounters
};

struct Bucket {
  uint8_t* digests;  // [128] 0 = empty
  Key* keys;         // [128] kEmptyKey = empty
  uint64_t* scores;  // [128] 0 = empty
};

struct TableRef {
  uint8_t* index;             // [local_buckets, kBucketBytes]
  void* values;               // [local_buckets * 128, dim] of value_type
  float* states[kMaxStates];  // [local_buckets * 128, state_width]
  uint64_t* counters;         // [kNumCounters]
  uint64_t num_buckets;       // of the whole table
  uint64_t first_bucket;      // of this shard
  int64_t local_buckets;      // of this shard
  int32_t dim;
  ValueType value_type;
  int32_t num_states;
  int32_t state_width[kMaxStates];  // dim, or 1
  float state_initial[kMaxStates];
  ScorePolicy policy;
  int32_t evicts;  // 0: a full bucket refuses new keys
  Initializer initializer;
  Initializer eval_initializer;
};

DYNEMB_HD Bucket bucket_at(TableRef const& table, int64_t local_bucket) {
  auto* const base = table.index + local_bucket * kBucketBytes;
  return {base, reinterpret_cast<Key*>(base + kKeysOffset),
          reinterpret_cast<uint64_t*>(base + kScoresOffset)};
}

DYNEMB_HD int64_t local_bucket_of(TableRef const& table, uint64_t hash) {
  return static_cast<int64_t>(bucket_of(hash, table.num_buckets) - table.first_bucket);
}

DYNEMB_HD Key* key_at(TableRef const& table, int32_t slot) {
  return bucket_at(table, slot / kBucketCapacity).keys + slot % kBucketCapacity;
}

DYNEMB_HD uint64_t* score_at(TableRef const& table, int32_t slot) {
  return bucket_at(table, slot / kBucketCapacity).scores + slot % kBucketCapacity;
}

DYNEMB_HD uint8_t* digest_at(TableRef const& table, int32_t slot) {
  return bucket_at(table, slot / kBucketCapacity).digests + slot % kBucketCapacity;
}

}  // namespace dynemb
