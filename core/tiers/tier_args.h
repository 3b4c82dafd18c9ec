// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/tiers/tier_args.h: one plain struct for each operation on a tiered table. Each is about one
// table, whose `index` is that of all its slots, and whose `values` and `states` are the rows in
// device memory: frames, then spill rows (core/tiers/tier_ref.h).
//
// Slots come from a lookup of the same program, or are any numbers: those that the table does not
// have are passed over. So are places and owners that no call has written.
#pragma once

#include <cstdint>

#include "core/args.h"
#include "core/tiers/tier_ref.h"

namespace dynemb {

enum class Promotion : int32_t { kLookup = 0, kPrefetch = 1 };

// promote: brings the rows of some slots into frames. For each distinct slot without a frame, in
// any order:
//  - an empty frame of its bucket, or else the one whose owner has the lowest score, but never one
//    whose owner is among the slots, nor one that this call has given away already. Where the
//    policy packs scores (is_packed), only if the newcomer's score is not below the owner's;
//  - a dirty owner whose slot is live (its score is not 0) first needs a spill row: the frame is
//    copied there and the owner's slot is written to `spilled` at that row's number. Without one
//    left the frame is not given away. Spill rows are used from the first on, without a gap;
//  - then the owner's place becomes home; the newcomer's record is copied into the frame, or its
//    first values are written where it is fresh (initialize_slot); its place and the frame's owner
//    are set, dirty where it was fresh;
//  - a slot that gets no frame stays as it is.
// Counts hits and misses of each occurrence (kLookup), and rows.
struct PromoteArgs {
  TableRef table;
  TierRef tier;
  Promotion purpose;
  int64_t num_ids;
  int32_t const* slots;  // [num_ids]
  int32_t* spilled;      // [spill_rows] the slot whose row the spill row holds; -1: none
};

// Of a slot that no longer holds its id, or that the table does not have: an update counts it.
constexpr int32_t kLostPlace = 0x7fffffff;

// fetch: says where an update finds the rows of some slots, and brings those there that have no
// frame. The distinct slots without a frame are numbered in order of slot; those from
// round * spill_rows on get the spill rows, as many as there are: the record is copied there, or
// first values are written where the row is fresh; a fresh one's place becomes home. In round 0
// frames of the slots become dirty.
// No frame changes its owner.
struct FetchArgs {
  TableRef table;
  TierRef tier;
  int64_t num_ids;
  int32_t const* slots;  // [num_ids]
  Key const* keys;       // [num_ids], compared with those of the slots if rows have left; or null
  int32_t const* round;  // [1]
  // [num_ids] the row of the arrays; -1: none in this round. In round 0 negative slots stay as they
  // are, and of slots that are lost it is kLostPlace. In other rounds, those of spill rows only.
  int32_t* places;
  int32_t* spilled;  // [spill_rows] as in PromoteArgs, ascending
  int32_t* count;    // [1] distinct slots without a frame
};

// write_back: copies rows to their home records. A negative slot, or one that the table does not
// have, is passed over, and so is a row that the arrays do not have. Slots are distinct, mostly in
// order. The call's only result is `homes`.
struct WriteBackArgs {
  TableRef table;        // values and states, no index
  int64_t num_rows;      // of the arrays
  uint8_t* homes;        // [num_slots, record_bytes]
  int64_t num_slots;     //
  int64_t record_bytes;  //
  int64_t count;         //
  int32_t const* slots;  // [count]
  int32_t const* rows;   // [count]
};

// tier_rows: the rows of a lookup or find, one per id or pooled, as those calls write them: of each
// slot from its frame or from its home record; of a fresh slot and of an id without a slot its
// initial row. `table.initializer` is that of fresh rows, `missing` of ids without a slot.
struct TierRowsArgs {
  TableRef table;  // values, no states, no index
  TierRef tier;    // homes, place, owners
  Initializer missing;
  int32_t num_features;
  uint32_t* done;                     // [1], set to 0: what a later change of the table waits for
  FeatureRef features[kMaxFeatures];  // slots are read
};

// tier_gather: rows and states of slots as they are stored (core/tiers/record.h), of a fresh slot
// its first ones; zeros of a slot that the table does not have.
struct TierGatherArgs {
  TableRef table;
  TierRef tier;
  int64_t num_slots;
  int32_t const* slots;       // [num_slots]
  void* values;               // [num_slots, dim] of value_type
  float* states[kMaxStates];  // [num_slots, state_width] each
};

}  // namespace dynemb
