// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/args.h: one plain struct for each operation: all of its pointers and sizes.
#pragma once

#include <cstdint>

#include "core/feature_ref.h"
#include "core/optimizer.h"
#include "core/table_ref.h"

namespace dynemb {

constexpr int kMaxTables = 64;     // of one call
constexpr int kMaxFeatures = 128;  // of one call

struct LookupArgs {
  int32_t num_tables;
  int32_t num_features;
  uint32_t const* given_scores;  // [num_tables], read by tables with customized scores
  TableRef tables[kMaxTables];
  FeatureRef features[kMaxFeatures];
};

// find reads tables and writes features only; it has the shape of a lookup.
using FindArgs = LookupArgs;

struct UpdateArgs {
  int32_t num_tables;
  int32_t num_features;
  float const* hyper;  // [num_tables, kNumHyperParameters]
  OptimizerKind optimizers[kMaxTables];
  TableRef tables[kMaxTables];
  FeatureRef features[kMaxFeatures];  // rows: the gradients
};

// The sum of the gradients of each live row, without an update.
struct ReduceArgs {
  int32_t num_tables;
  int32_t num_features;
  int32_t counts_step;                // 1: counts as an update of the tables
  int32_t* unique_slots[kMaxTables];  // [capacity of the table], -1 = unused
  float* gradients[kMaxTables];       // [capacity of the table, dim], 0 where unused
  int64_t capacities[kMaxTables];     // ids of the table's features
  TableRef tables[kMaxTables];
  FeatureRef features[kMaxFeatures];
};

// Rows in order of `slots`; a negative slot reads zeros and writes nothing.
struct RowsArgs {
  int64_t num_slots;
  int32_t const* slots;       // [num_slots], distinct where written
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

}  // namespace dynemb
