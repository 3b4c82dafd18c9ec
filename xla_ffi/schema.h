// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/schema.h: the attributes and the order of buffers of every call; Python reads them from
// module.cc.
#pragma once

#include <cstdint>

namespace dynemb {

// Attribute "tables", int64[num_tables, kNumTableFields].
enum TableField : int32_t {
  kTableNumStates = 0,
  kTableNumBuckets,  // of the whole table
  kTablePolicy,
  kTableEvicts,
  kTableInitializer,
  kTableEvalInitializer,
  kTableOptimizer,
  kTableShares,          // 1: lies in the arrays of the table before, which are not passed again
  kTableFirstBucket,     // in its arrays
  kTableLocalBuckets,    // of this shard
  kTableFirstRow,        // of the counters in its arrays
  kTableCounterRows,     // of this shard
  kTableSkipsNonfinite,  // 1: rows whose gradient is not finite keep their values
  kTableHashSeed,        // 64 bits
  kTableRounding,        // 1: updates round rows of 16 bits stochastically
  kTableKeepsScores,     // 1: a lookup leaves the scores of rows that it finds
  kTableAdmission,       // an AdmissionRule
  kTableThreshold,       // of the rule
  kTableSketchWords,     // of a bucket; 0: no sketch
  kTableSketchBits,      // of a counter
  kTableRingSize,        // keys in a ring of the log of removed keys; 0: no log
  kTableKeepFor,         // Removals::keep_for
  kTablePart,            // TablePart: which arrays the call gets of a tiered table
  kTableHalflife,        // of counts that decay, in lookups
  kTableTakesGiven,      // 1: a lookup brings the table's score, or the time
  kTableDepartedRows,    // rows in the ring of departed rows; 0: none
  kNumTableFields
};

// Of a tiered table an ordinary call gets one of two parts (docs/decisions/tiers.md).
enum TablePart : int64_t {
  kWholeTable = 0,
  kIndexPart,  // no values; the places as a state, and holds where there is a ring
  kRowsPart,   // no index: slots are rows of the arrays; their keys where updates need them
};

// These fields say where rows lie. Several features, or tables, may share an array of one axis: its
// buffer comes with the first that uses it.
enum RowsField : int32_t {
  kRowsArray = 0,  // its number in the call, counted from 0; -1: an array [rows, dim] of their own
  kRowsPassedOn,   // 1: a result that is an operand too, since earlier calls wrote some of it
  kRowsOffset,     // elements before the first row
  kRowsGroup,      // see RowPlaces in core/feature_ref.h
  kRowsStride,     //
  kNumRowsFields
};

// Attribute "packed" of find_packed, int64[num_tables, kNumPackedFields].
enum PackedField : int32_t {
  kPackedCode = 0,   // RowCode, the same of all tables of a call
  kPackedDim,        // columns
  kPackedValueType,  // of the rows of unknown ids
  kNumPackedFields
};

// Attribute "features", int64[num_features, kNumFeatureFields].
enum FeatureField : int32_t {
  kFeatureTable = 0,
  kFeaturePooling,
  kFeatureBagSize,     // 0: offsets are given
  kFeatureHasWeights,  //
  kFeatureHasUses,     // and twice the ids that lie in an array of several features, see below
  kFeatureRows,        // RowsField
  kNumFeatureFields = kFeatureRows + kNumRowsFields
};

// Attribute "sums" of sum_rows, int64[num_tables, kNumSumsFields].
enum SumsField : int32_t {
  kSumsGroups = 0,
  kSumsDim,
  kSumsRows,  // RowsField
  kNumSumsFields = kSumsRows + kNumRowsFields
};

// Attribute "parts" of route, int64[num_parts, kNumPartFields].
enum PartField : int32_t {
  kPartSize = 0,  // ids
  kPartFirst,     // segment
  kPartOwners,    // segments
  kPartHashSeed,  // 64 bits
  kPartBuckets,   // of the table; 0: one for each owner
  kPartOfEach,    // of these: how many an owner has
  kNumPartFields
};

// Attribute "initializers", float32[num_tables, 2, kInitializerParameters]: training, evaluation.
// Attribute "state_initial", float32[num_tables, kMaxStates].
//
// First of all lookup takes uint32[num_tables, 2], if a table takes a score or the time, and update
// hyper-parameters.
// Then update and reduce take the stamps of the lookup, uint32[num_tables, 4] (core/stamp.h), if
// attribute "stamped" is 1; lookup returns them before anything else.
// Buffers of a table, in this order and as far as the call uses them:
//   index, values, state 0 .. num_states - 1, counters, [sketch], [removed], [departed]
// lookup, erase and erase_rule take the log of removed keys of tables that have one. lookup takes
// the ring of departed rows of index parts that have one; their states are places and holds.
// find has counters if the rows of some table's unknown ids depend on its seed.
// Tables of one width may lie one after the other in the same arrays; such tables stand together.
// Buffers of a feature:
//   lookup  in: ids, [offsets], [weights], [uses]                  out: [rows], slots, [scale]
//   find    in: ids, [offsets], [weights]                          out: rows, slots
//   peer_lookup, peer_find  as lookup and find, on GPUs; then: rank. Attributes "devices" and
//             "shards" name the peers that get the groups of rows, which all lie in one array
//   find_packed  as find; the values of its tables are uint8[slots, bytes of a row]
//   update  in: ids, slots, gradients, [offsets], [weights], [scale]
//   update_any, reduce  as update
//   sum_rows  as update, without ids; slots are the numbers of groups. If attribute "ordered" is 1,
//             there is one feature, and then: ranks, positions (the slots in order)
//   peer_sums  as sum_rows, on GPUs; then: rank. Attributes "devices" and "shards" name the peers
//             that get the groups. If attribute "ordered" is 1, then: positions of all features, in
//             the order of their slots
// Ids, and slots, of features may lie one after the other in an array that they share:
// kFeatureHasUses says how many are a feature's. Each of the two arrays comes with the first
// feature that has some. Other features have arrays of their own.
//
// count_rule and erase_rule are about one table, with an attribute "fields" of core/rule.h.
//   in: rule, [norms]   out: bins of count_rule, removed of erase_rule
// decay   in: factor
// route knows neither tables nor features.  in: ids   out: unique_of, first, starts
//   ordered_route  likewise, and then: positions, in the order of the numbers
// send_bags  in: ids of each of its "parts", rank   out: of each, ids of all devices. Each device
//   gets those that it owns, and padding in the place of others
// offsets neither; its attribute "capacity" is how many ids there are.
//   in: lengths   out: offsets, malformed
//   offsets_of_features  likewise for each of its attribute "capacities", one after the other
// add_to_counters  in: numbers; its attribute "places" has of each an array and a counter there
//   in and out: counters of tables, in the order in which "places" names them
// Nor does distinct, with attributes "limit" and "suffixes".
//   in: numbers   out: values, inverse, ranks, positions, count, starts, of_suffix
// Nor do pair_rows and pair_gradients, with attributes "rank", "exact", "segments" and "inner". A
// prefix is `segments` rows of the array, and those of `inner` prefixes lie side by side.
//   pair_rows       in: prefix, suffix, starts, of_suffix           out: rows
//   pair_gradients  in: prefix, suffix, starts, of_suffix, d_rows   out: d_prefix, d_suffix
// promote, fetch, write_back, depart, tier_rows and tier_gather: docs/decisions/tiers.md.
// write_back has no scratch, which would lie in device memory beside results in host memory. The
// last operand of every call is a number that is not read (jax_dynemb/_src/ops/call.py); the last
// result is scratch memory, uint8[n]; n may be 0.
// Every table buffer of a call that changes the table is both operand and result.

}  // namespace dynemb
