// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/tiers/tier_args.h: one plain struct for each operation on tiered tables: what it needs of
// one table, and OfTables of that. The `index` of a table is that of all its slots, and its
// `values` and `states` are the rows in device memory: frames, then spill rows
// (core/tiers/tier_ref.h).
//
// Slots come from a lookup of the same program, or are any numbers: those that the table does not
// have (local_buckets * 128 of them) are passed over. So are places and owners that no call has
// written.
#pragma once

#include <cstdint>

#include "core/args.h"
#include "core/tiers/tier_ref.h"

namespace dynemb {

constexpr int kMaxTierTables = 32;  // of one call

template <class OfTable>
struct OfTables {
  int32_t num_tables;
  OfTable tables[kMaxTierTables];
};

enum class Promotion : int32_t { kLookup = 0, kPrefetch = 1 };

// promote: brings the rows of some slots into frames. The distinct slots of a bucket without a
// frame, in order of slot, each get the frame of the bucket that goes first (goes_before), but
// never one whose owner is among the slots, nor one that this call has reassigned already:
//  - where the policy packs scores (is_packed), a newcomer gets no owned frame if its score is
//  below
//    the owner's;
//  - the slot of a dirty owner that is live (its score is not 0) is written to `spilled`, and its
//    row to `rows`: the frame itself, or where a fresh newcomer is written there now, the spill row
//    that the frame was copied to. Where spill rows run out the frame keeps its owner;
//  - then the owner's location becomes home. The first values of a fresh newcomer are written into
//  the
//    frame (initialize_slot); the record of any other is left to swap_rows and settle, so its slot
//    and the frame are listed, mostly in order. A row that leaves its frame for such a record
//    stands at the same place of its list on a GPU. The newcomer's location and the frame's owner
//    are set, dirty where it was fresh;
//  - a slot that gets no frame stays as it is.
// Counts hits and misses of each occurrence (kLookup), and rows.
struct PromoteTable {
  TableRef table;
  TierRef tier;
  Promotion purpose;
  int64_t num_ids;
  int32_t const* slots;  // [num_ids]
  int32_t* spilled;      // [num_ids] slots whose rows are written home; -1: none
  int32_t* rows;         // [num_ids] these rows of the arrays
  int32_t* arriving;     // [num_ids] slots whose records swap_rows copies to frames; -1: none
  int32_t* into;         // [num_ids] the rows that they come to
  int32_t* counts;       // [2] entries of `spilled` and of `arriving`; what follows is undefined
};

using PromoteArgs = OfTables<PromoteTable>;

// Of a slot that no longer holds its id, or that the table does not have: an update counts it.
constexpr int32_t kLostPlace = 0x7fffffff;

// fetch: says where an update finds the rows of some slots, and brings those there that have no
// frame. The distinct slots without a frame are numbered in order of slot; those from
// round * spill_rows on get the spill rows, as many as there are: the record is copied there, or
// first values are written where the row is fresh; a fresh one's location becomes home. In round 0
// frames of the slots become dirty.
// No frame changes its owner.
struct FetchTable {
  TableRef table;
  TierRef tier;
  int64_t num_ids;
  int32_t const* slots;  // [num_ids]
  Key const* keys;  // [num_ids], compared with those of the slots once rows were removed; or null
  int32_t const* round;  // [1] of all tables
  // [num_ids] the row of the arrays; -1: none in this round. In round 0 negative slots stay as they
  // are, and of slots that are lost it is kLostPlace. In other rounds only rows in spill rows have
  // one.
  int32_t* places;
  int32_t* spilled;  // [spill_rows] the slot whose row the spill row holds, ascending
  int32_t* counts;   // [2] entries of `spilled`; distinct slots without a frame, of all rounds
};

using FetchArgs = OfTables<FetchTable>;

// depart: copies the rows that are noted in a ring to their records there (core/departures.h): each
// from the frame that its note names, else from its home record; of a fresh row its first values.
// Runs before anything else moves rows. Counts departures and refusals.
struct DepartArgs {
  TableRef table;  // no index: a note has the key
  TierRef tier;    // homes, owners, counters
  Departures departures;
  uint8_t* records;  // [room, record_bytes]
};

// write_back: copies rows to their home records. A negative slot, or one that the table does not
// have, is passed over, and so is a row that the arrays do not have. Slots are distinct, mostly in
// order. Of the lists only as many entries count as `counts` says. The call's only result is
// `homes`.
//
// swap_rows: the same, and on a GPU it copies other records to rows, at the same time, since a bus
// has two directions. The arrays with these rows are operands, so the rows are there only if XLA
// has handed over the arrays themselves: it sets a mark beside them, which settle looks for. No
// slot is in both lists, and on a GPU a row only at the same place of both.
struct WriteBackTable {
  TableRef table;         // values and states, no index
  int64_t num_rows;       // of the arrays
  uint8_t* homes;         // [num_slots, record_bytes]
  int64_t num_slots;      //
  int64_t record_bytes;   //
  int32_t const* counts;  // [2] of the first list, and of the second
  int64_t count;          //
  int32_t const* slots;   // [count]
  int32_t const* rows;    // [count]
  // Only swap_rows reads what follows.
  int64_t num_arriving;
  int32_t const* arriving;  // [num_arriving] slots
  int32_t const* into;      // [num_arriving] rows
};

using WriteBackArgs = OfTables<WriteBackTable>;

// How many entries of a list count: a number from device memory, which may be any.
DYNEMB_HD int64_t entries_of(int32_t const* counts, int list, int64_t size) {
  auto const count = int64_t{counts[list]};
  return count < 0 ? 0 : count < size ? count : size;
}

// settle: copies the records to rows that swap_rows was to bring, unless they are there. On a GPU
// the mark says so: promote clears it in the last spill row of each array, and swap_rows sets it.
struct SettleTable {
  TableRef table;         // values and states, no index
  TierRef tier;           // homes
  int64_t num_rows;       // of the arrays
  int32_t const* counts;  // [2] as in WriteBackTable
  int64_t num_arriving;
  int32_t const* arriving;  // [num_arriving] slots
  int32_t const* into;      // [num_arriving] rows
};

using SettleArgs = OfTables<SettleTable>;

// tier_rows: the rows of a lookup or find, one per id or pooled, as those calls write them: of each
// slot from its frame or from its home record; of a fresh slot and of an id without a slot its
// initial row. `table.initializer` is that of fresh rows, `missing` of ids without a slot.
struct TierRowsTable {
  TableRef table;  // values, no states, no index
  TierRef tier;    // homes, location, owners
  Initializer missing;
};

struct TierRowsArgs {
  int32_t num_tables;
  int32_t num_features;
  int32_t serves;  // 1: of a find
  uint32_t* done;  // of a find [1], set to 0: what a later change of the tables waits for; or null
  TierRowsTable tables[kMaxTierTables];
  FeatureRef features[kMaxFeatures];  // slots are read
};

// tier_gather, about one table: rows and states of slots as they are stored (core/tiers/record.h),
// of a fresh slot its first ones; zeros of a slot that the table does not have.
struct TierGatherArgs {
  TableRef table;
  TierRef tier;
  int64_t num_slots;
  int32_t const* slots;       // [num_slots]
  void* values;               // [num_slots, dim] of value_type
  float* states[kMaxStates];  // [num_slots, state_width] each
};

}  // namespace dynemb
