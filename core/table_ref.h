// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/table_ref.h: a view of one table, owning nothing, passed by value.
#pragma once

#include <cstdint>

#include "core/atomic.h"
#include "core/hash.h"
#include "core/initializer.h"
#include "core/macros.h"
#include "core/score.h"
#include "core/value_type.h"

namespace dynemb {

constexpr int kBucketCapacity = 128;                    // slots
constexpr int kBucketBytes = kBucketCapacity * 17;      // 128 digests, 128 entries
constexpr int kEntriesOffset = kBucketCapacity;         // bytes into a bucket
constexpr int kCustomScoreBytes = kBucketCapacity * 8;  // behind a bucket of a customized table
constexpr int kMaxStates = 4;                           // optimizer arrays of one table

// Places in a row of the counters of a table, 64 bits each. There is a row for every shard that the
// table may be cut into, so a shard has one or more. Events (EVENTS in engines/shard/counters.py:
// rows, inserted, evicted, hits, ...) are counted in a shard's first row and are the sum over all
// rows; every other number is the same in each row (set_in_each_row).
enum Counter : int32_t {
  kClock = 0,    // of the latest lookup, in the unit of the score policy
  kSeed,         // of the initial rows
  kStep,         // optimizer updates so far
  kRows,         // live rows
  kInserted,     // rows stored since the table was made
  kEvicted,      // rows replaced by another key
  kRefused,      // ids that found no place
  kLostUpdates,  // gradients whose row had lost its slot
  kLookups,      // training lookups
  // Of a sharded lookup, written by Python: ids that a device has for one owner.
  kExchangeCapacity,   // room for them in one round, at the latest lookup
  kExchangePeak,       // the most there have been
  kExchangeOverflows,  // lookups that needed more than one round
  // Where the columns of a row lie on several shards: how many are on the shards before this one, a
  // multiple of four. It is 0 where a row is not cut.
  kFirstColumn,
  // Of a shard: not 0 once a row has lost its slot: evicted, erased, cleared, or moved by growth.
  kLeft,
  // A running lookup on a GPU counts here, in the last row of its first table, the ids that wait
  // for a slot, and above 32 bits those of full buckets. The counter is 0 in all rows between
  // operations, so no kernel has to clear it first.
  kWaiting,
  kMalformedLengths,  // bags of a negative length, or more ids than there are, which were cut
  kNonfinite,         // rows not updated or inserted: a number was not finite
  kStamp,             // the low word of the run, see below
  // Ids of training lookups, each occurrence: of rows that were there, of all others, and of those
  // that an admission rule kept out.
  kHits,
  kMisses,
  kNotAdmitted,
  kErased,         // rows removed by their keys
  kRemovedByRule,  // rows removed by a rule
  kPinned,         // live rows that only an erase removes
  kEvictedYoung,   // evicted rows that one of the latest lookups had used
  // Which table this is, and which moment of it (core/lineage.h). The run is 128 random bits that
  // all tables of an `init` share: kStamp and this.
  kStampHigh,
  kSegment,                      // random bits of the time since `init` or the last restore
  kAncestors,                    // the segments before, the newest first, with their last clocks
  kMoment = kAncestors + 2 * 8,  // training lookups since `init`; in a shard's first row
  kNonce,                        // of the latest one; in a shard's first row
  kNonces,                       // of the latest ones, in a ring; in a shard's first row
  kNumCounters = kNonces + 16
};

// Side by side, since a probe that finds a key touches its score: one access to memory, not two.
struct alignas(16) Entry {
  Key key;         // kEmptyKey = empty
  uint64_t score;  // 0 = empty
};

struct Bucket {
  uint8_t* digests;  // [128] 0 = empty
  Entry* entries;    // [128]
};

enum OnFull : int16_t {
  kRefuses = 0,
  kEvicts = 1,
  kCompetes = 2,  // evicts rows with a lower score than the new key's, and no others
};

struct TableRef {
  uint8_t* index;             // [local_buckets, bucket_bytes(policy)]
  void* values;               // [local_buckets * 128, dim] of value_type
  float* states[kMaxStates];  // [local_buckets * 128, state_width]; or of bfloat16, see half_states
  uint64_t* counters;         // [counter_rows, kNumCounters]
  uint64_t num_buckets;       // of the whole table, below 2^32
  int64_t local_buckets;      // of each shard; the last ones end in buckets that no key has
  int32_t counter_rows;       // of this shard
  int32_t dim;
  ValueType value_type;
  int32_t num_states;
  int32_t state_width[kMaxStates];  // dim, or 1
  float state_initial[kMaxStates];
  ScorePolicy policy;
  OnFull evicts;                     // what a full bucket does with new keys
  uint32_t halflife;                 // lookups, kDecayingLfu only
  int16_t skips_nonfinite;           // 1: a row with a gradient that is not finite keeps its values
  int8_t rounds_stochastically = 0;  // 1: what has 16 bits is, by updates (core/stochastic.h)
  uint8_t half_states = 0;           // a bit for each state that is stored as bfloat16
  uint32_t num_groups;               // of a table without an index: its slots are their numbers
  union {  // since a kernel takes the structs of 64 tables, and its parameters have 32 KB
    HashFactors hash = plain_factors();  // of its keys, from the table's seed
    Key const* row_keys;                 // without an index: the key of each slot, for rounding
  };
  Initializer initializer;
  Initializer eval_initializer;
};

// What every slot that a caller brings is compared with (core/slot.h).
DYNEMB_HD uint32_t num_slots(TableRef const& table) {
  if (table.index == nullptr) return table.num_groups;
  return static_cast<uint32_t>(table.local_buckets * kBucketCapacity);
}

// From one bucket to the next: those of a customized table have custom scores behind them.
DYNEMB_HD int64_t bucket_bytes(ScorePolicy policy) {
  return policy == ScorePolicy::kCustomized ? kBucketBytes + kCustomScoreBytes : kBucketBytes;
}

DYNEMB_HD Bucket bucket_at(TableRef const& table, int64_t local_bucket) {
  auto* const base = table.index + local_bucket * bucket_bytes(table.policy);
  return {base, reinterpret_cast<Entry*>(base + kEntriesOffset)};
}

DYNEMB_HD int64_t local_bucket_of(TableRef const& table, uint64_t hash) {
  auto const bucket = static_cast<uint32_t>(bucket_of(hash, table.num_buckets));
  auto const local = static_cast<uint32_t>(table.local_buckets);
  return local == table.num_buckets ? bucket : bucket % local;
}

DYNEMB_HD ScoreRule score_rule(TableRef const& table) { return {table.policy, table.halflife}; }

DYNEMB_HD void set_in_each_row(TableRef const& table, Counter counter, uint64_t value) {
  for (int32_t row = 0; row < table.counter_rows; ++row) {
    table.counters[row * kNumCounters + counter] = value;
  }
}

// Does every slot still belong to the first id that got it? Then slots of a lookup are used without
// a look at their keys.
DYNEMB_HD bool keeps_slots(TableRef const& table) { return table.counters[kLeft] == 0; }

// Called after rows have lost their slots; by any number of threads.
DYNEMB_HD void note_left(TableRef const& table) {
  for (int32_t row = 0; row < table.counter_rows; ++row) {
    atomic_store(table.counters + row * kNumCounters + kLeft, 1);
  }
}

DYNEMB_HD Entry* entry_at(TableRef const& table, int32_t slot) {
  return bucket_at(table, slot / kBucketCapacity).entries + slot % kBucketCapacity;
}

DYNEMB_HD Key* key_at(TableRef const& table, int32_t slot) { return &entry_at(table, slot)->key; }

// What the random bits of a row's rounding follow from (core/stochastic.h).
DYNEMB_HD Key const* rounding_key_at(TableRef const& table, int32_t slot) {
  return table.index == nullptr ? table.row_keys + slot : key_at(table, slot);
}

DYNEMB_HD uint64_t* score_at(TableRef const& table, int32_t slot) {
  return &entry_at(table, slot)->score;
}

DYNEMB_HD uint8_t* digest_at(TableRef const& table, int32_t slot) {
  return bucket_at(table, slot / kBucketCapacity).digests + slot % kBucketCapacity;
}

}  // namespace dynemb
