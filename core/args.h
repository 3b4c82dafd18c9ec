// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/args.h: one plain struct for each operation: all of its pointers and sizes.
#pragma once

#include <cstdint>

#include "core/admission.h"
#include "core/custom_score.h"
#include "core/departures.h"
#include "core/feature_ref.h"
#include "core/optimizer.h"
#include "core/packed_row.h"
#include "core/removals.h"
#include "core/stamp.h"
#include "core/table_ref.h"

namespace dynemb {

constexpr int kMaxTables = 64;     // of one call
constexpr int kMaxFeatures = 128;  // of one call

struct LookupArgs {
  int32_t num_tables;
  int32_t num_features;
  // [num_tables], or null: the score of a customized table, with kCustomScoreBit, or the time of
  // one that notes times, where 0 lets the device read its clock.
  uint64_t const* given;
  Stamp* stamps;  // [num_tables], for the update; null in a find
  TableRef tables[kMaxTables];
  FeatureRef features[kMaxFeatures];
  Admission admissions[kMaxTables];
  // [num_ids] how many ids each one stands for; null: 1. Of a customized table, the scores of the
  // ids follow (custom_score_of_id).
  uint32_t const* uses[kMaxFeatures];
  Removals removals[kMaxTables];
  Departures departures[kMaxTables];
};

DYNEMB_HD uint32_t uses_at(uint32_t const* uses, int64_t position) {
  return uses == nullptr ? 1 : uses[position];
}

// What the lookup of one id makes of its row: its own score, if there is one.
DYNEMB_HD Touch touch_at(Touch const& use, ScorePolicy policy, uint32_t const* uses,
                         int64_t num_ids, int64_t position) {
  if (uses == nullptr || policy != ScorePolicy::kCustomized) return use;
  return {use.clock, custom_score_of_id(uses, num_ids, position)};
}

// Do the ids of a feature have scores of their own, for rows that a lookup touches?
DYNEMB_HD bool raises_custom_scores(LookupArgs const& args, int32_t feature) {
  auto const t = args.features[feature].table;
  return args.uses[feature] != nullptr && args.admissions[t].keeps_scores == 0 &&
         args.tables[t].policy == ScorePolicy::kCustomized;
}

// find reads tables and writes features only; it has the shape of a lookup.
using FindArgs = LookupArgs;

// The same of tables whose rows are packed, all with one code. Their `values` are bytes, and
// `value_type` is that of the rows of unknown ids.
struct FindPackedArgs : FindArgs {
  RowCode code;
};

// update is for the first four optimizers, each with loops of its own; update_any for all of them.
struct UpdateArgs {
  int32_t num_tables;
  int32_t num_features;
  float const* hyper;   // [num_tables, kNumHyperParameters], or kNumAnyHyper of update_any
  Stamp const* stamps;  // [num_tables], of the lookup; or null
  // 1: of several lookups. A later one may have given a slot to another id, so one slot may have
  // gradients of two ids. A CPU looks at the id of each anyway.
  int32_t joins_lookups;
  OptimizerKind optimizers[kMaxTables];
  TableRef tables[kMaxTables];
  FeatureRef features[kMaxFeatures];  // rows: the gradients
};

// Where the sums of a table's rows go: each to where its row first occurs in the batch; or, without
// unique_slots, to the row of the number of its slot, and then nothing else is written.
struct RowSums {
  int32_t* unique_slots;  // [capacity], -1 = unused; or null
  void* rows;             // [capacity, dim] of row_type, 0 where unused
  RowPlaces places;       // of the rows
  int64_t capacity;       // ids of the table's features; without unique_slots the number of slots
  ValueType row_type;     //
  int32_t leaves_unused = 0;  // 1: unused rows need not be 0
};

// Holds the order of the positions of a call with one feature: ascending slots, equal ones in order
// of position. Both arrays are data: any numbers. Null where the order is not known. A call
// with several features may give positions alone: they count the ids of all features, table by
// table, and each feature has its slots.
struct GivenOrder {
  int32_t const* slots = nullptr;      // [num_ids] in order; negative: of no row
  int32_t const* positions = nullptr;  // [num_ids] in order
};

// Names the GPUs of one host that get the results of a call: the groups of rows of a result are
// theirs, in order of rank. Without devices they stay here, as on a CPU always.
struct PeerDevices {
  int64_t const* devices = nullptr;  // ids, on the host: groups of `shards` side by side
  int64_t num_devices = 0;
  int64_t shards = 0;
  int32_t const* rank = nullptr;  // of this one among the shards
};

// Describes sums of the gradients of each live row, without an update. A table without an index is
// one of groups: its slots are compared with their number, and belong to no id.
struct ReduceArgs {
  int32_t num_tables;
  int32_t num_features;
  int32_t counts_step;       // 1: counts as an update of the tables
  int32_t joins_lookups;     // see UpdateArgs
  GivenOrder order;          // a CPU does not need it
  Stamp const* stamps;       // [num_tables], of the lookup; or null
  PeerDevices peers;         // of sums that have a place each
  RowSums sums[kMaxTables];  //
  TableRef tables[kMaxTables];
  FeatureRef features[kMaxFeatures];
};

// Rows in order of `slots`; a slot that the table does not have reads zeros and writes nothing.
struct RowsArgs {
  int64_t num_slots;
  int32_t const* slots;       // [num_slots]
  int32_t rounds;             // 1: values are rounded as by an update (core/stochastic.h)
  int32_t last_wins;          // 1: the last of those that write one slot; 0: they are distinct
  uint64_t* scores;           // [num_slots], or null
  float* values;              // [num_slots, dim], or null
  float* states[kMaxStates];  // [num_slots, state_width], or null each
  TableRef table;
};

struct EraseArgs {
  int64_t num_ids;
  void const* ids;
  IdType id_type;
  int32_t* slots;  // [num_ids], between the two phases
  TableRef table;
  Removals removals;
};

// Holds a rule about the rows of a table, see core/rule.h.
struct RuleArgs {
  uint32_t fields;          // of RuleField
  uint32_t const* numbers;  // [kNumRuleWords]
  float const* norms;       // [slots], or null where the rule has none
  uint32_t* result;         // count_rule: [kNumCountWords]; erase_rule: [1], rows that were removed
  TableRef table;
  Removals removals{};
};

struct DecayArgs {
  float const* factor;  // [1]
  TableRef table;
};

// The live rows of a range of buckets, compacted, in order of bucket and place.
struct ExportArgs {
  int32_t const* first_bucket;  // [1] of the range, local to the shard
  int64_t num_buckets;          // of the range; buckets past the end of the shard count as empty
  uint64_t const* min_score;    // [1]: rows with a lower score are left out
  uint64_t* keys;               // [num_buckets * 128]
  uint64_t* scores;             // [num_buckets * 128]
  int32_t* slots;               // [num_buckets * 128], -1 = unused
  int32_t* count;               // [1]
  TableRef table;
};

enum class LengthType : int32_t { kInt32 = 0, kUInt32 = 1, kInt64 = 2, kUInt64 = 3 };

// Where the bags of a jagged input begin, see core/offsets.h.
struct BagLengths {
  int64_t num_bags;
  void const* lengths;  // [num_bags] of type, any numbers
  LengthType type;
  int32_t capacity;     // ids that there are, below 2^31 - 1
  int32_t* offsets;     // [num_bags + 1]
  uint32_t* malformed;  // [1] bags that were cut
};

struct OffsetsArgs {
  int32_t num_features;
  BagLengths features[kMaxFeatures];
};

// Numbers that are added to counters; several may go to one.
struct CounterAddition {
  uint32_t const* number;  // [1]
  uint64_t* counter;
};

struct AddToCountersArgs {
  int32_t num_additions;
  CounterAddition additions[kMaxFeatures];
};

// Says which shards own the ids of a table: each has equally many of its buckets, but the last that
// has some may have fewer, and those behind it none.
struct Owners {
  uint32_t buckets;
  uint32_t of_each;
};

// Holds the ids of one table in a batch. Its owners' segments follow each other, and those of the
// part before come first.
struct RoutePart {
  int64_t size;
  int32_t first_segment;
  Owners owners;
  HashFactors hash;
};

// The distinct ids of several tables, numbered in order of (table, hash); see core/route.h.
struct RouteArgs {
  int64_t num_ids;
  Key const* ids;          // [num_ids], one part after the other
  RoutePart const* parts;  // [num_parts], on the host
  int32_t num_parts;
  int32_t num_segments;
  int32_t* unique_of;  // [num_ids] the number of each id; num_ids for padding
  int32_t* first;      // [num_ids] where each distinct id first occurs; num_ids past the last one
  int32_t* starts;  // [num_segments + 1] the first number of each segment, and how many there are
  int32_t* order;   // [num_ids] positions by part, number and position, padding last; or null
};

// Holds the distinct numbers of a batch of a tensor train; see core/distinct.h.
struct DistinctArgs {
  int64_t num_ids;
  uint32_t const* numbers;  // [num_ids], any numbers
  uint32_t limit;           // of numbers that have rows
  uint32_t num_suffixes;    // at least 1
  int64_t num_prefixes;
  uint32_t* values;    // [num_ids] each number once, ascending; 0 behind the last
  int32_t* inverse;    // [num_ids] the place of each number in `values`; -1: it has no row
  int32_t* ranks;      // [num_ids] the same, in order of the numbers
  int32_t* positions;  // [num_ids] in order of their numbers, equal ones ascending
  int32_t* count;      // [1] of the values
  int32_t* starts;     // [num_prefixes + 1] how many values have a lower prefix
  int32_t* of_suffix;  // [num_ids] the suffix of each value; -1: there is none
};

// Holds the factors of rows, sorted so that the rows of one prefix stand together: row i is the
// matrix product of prefix p, which is m x k, and suffix[of_suffix[i]], which is k x n, where
// starts[p] <= i and i < starts[p + 1]. See core/pair_rows.h.
//
// Prefixes lie as a product of two cores leaves them, [num_prefixes / inner_prefixes, segments,
// inner_prefixes, inner_m, k]: so no array of that size is transposed.
struct PairShape {
  int64_t num_prefixes;
  int64_t num_suffixes;
  int64_t num_rows;
  int32_t m, k, n;
  int64_t inner_prefixes;
  int32_t segments, inner_m;  // their product is m
  int32_t exact;              // 1: float32; 0: a GPU may round the factors to TensorFloat-32
  int32_t const* starts;      // [num_prefixes + 1], any numbers
  int32_t const* of_suffix;   // [num_rows], any numbers
};

struct PairRowsArgs {
  PairShape shape;
  float const* prefix;
  float const* suffix;  // [num_suffixes, k * n]
  float* rows;          // [num_rows, m * n]
};

// Rows of no prefix have no suffix.
struct PairGradientsArgs {
  PairShape shape;
  float const* prefix;
  float const* suffix;
  float const* d_rows;  // [num_rows, m * n]
  float* d_prefix;      // as prefix
  float* d_suffix;      // [num_suffixes, k * n]
};

}  // namespace dynemb
