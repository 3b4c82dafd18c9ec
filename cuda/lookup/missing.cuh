// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/missing.cuh: the ids that the probe of a training lookup did not find, and what is
// done about them.
#pragma once

#include <cstdint>

#include "core/lookup.h"
#include "cuda/grid/prologue.cuh"

namespace dynemb::cuda {

struct alignas(16) Missing {
  Key key;
  uint32_t position;
  uint16_t feature;
  Won won;
  bool has_row;  // the probe has written the first values of the slot's row
};
static_assert(sizeof(Missing) == 16, "read and written at once");

struct MissingCounts {
  uint32_t ids;   // that have claimed an empty slot, or found its claim
  uint32_t full;  // of full buckets, or of tables with a rule
};

// Holds a range of FullIds::order.
struct FullBin {
  uint32_t begin, end;
};

constexpr uint32_t kIdsOfBin = 8;  // on average, where many ids met full buckets

// Where those of full buckets are grouped (cuda/lookup/full_buckets.cuh).
struct FullIds {
  uint32_t num_bins;   // a power of two: as many as there may be
  uint32_t* bins;      // [num_bins] how many ids, 0 before; then where the next one goes
  FullBin* used;       // [num_bins] those that are not empty
  uint32_t* order;     // [all ids of the call] their numbers on the list, those of a bin together
  uint32_t* num_ids;   // [1] that bins have made room for, 0 before
  uint32_t* num_used;  // [1] bins that are not empty, 0 before
};

struct MissingList {
  Missing* ids;           // [all ids of the call] from the first on; those of full buckets
  Missing* last;          // from the last one on, backwards
  uint32_t* arrived;      // [1] blocks at a barrier, 0 before
  uint32_t* ended;        // [1] blocks that have ended, 0 before
  MissingCounts* counts;  // [1] a counter of the first table (kWaiting)
  FullIds full;
};

struct MissingCall {
  CallView view;
  Touch const* uses;           // [tables]
  CounterRows const* counted;  // [tables] what the lookup changes in their counters
  MissingList list;
};

// Tables with custom scores are in lookups that select (cuda/lookup/lookup.cu).
__device__ __forceinline__ void assume_not_customized([[maybe_unused]] TableRef const& table) {
#ifdef __CUDA_ARCH__
  __builtin_assume(table.policy != ScorePolicy::kCustomized);
#endif
}

// What a lookup that selects ids takes besides; features are in the order of fill_call.
template <bool kSelects>
struct Selection {};

template <>
struct Selection<true> {
  Admission admissions[kMaxTables];
  uint32_t const* uses[kMaxFeatures];
  bool counts_keys;  // one of the tables
};

// What only the kernel of cuda/lookup/missing.cu takes: the other one has no room for it.
template <bool kSelects>
struct NotedRemovals {};

template <>
struct NotedRemovals<true> {
  Removals of[kMaxTables];
  Departures departures[kMaxTables];
};

template <bool kSelects>
struct SelectingCall {
  MissingCall call;
  Selection<kSelects> selection;
  NotedRemovals<kSelects> removals;
};

// Clears what the kernel of cuda/lookup/missing.cu counts with. Threads of a kernel before it call
// this.
__device__ __forceinline__ void begin_missing(MissingList const& list, Share const& share) {
  if (share.rank == 0) {
    *list.arrived = *list.ended = *list.full.num_ids = *list.full.num_used = 0;
  }
  auto* const bins = reinterpret_cast<uint4*>(list.full.bins);
  auto const quads = static_cast<int32_t>(list.full.num_bins / 4);
  for (auto i = share.rank; i < quads; i += share.size) bins[i] = {0, 0, 0, 0};
}

// Draws numbers for the lanes in `lanes`, in their order. Reached by all lanes of a warp.
__device__ __forceinline__ uint32_t next_numbers(uint32_t* count, unsigned lanes) {
  uint32_t first = 0;
  if (lane_id() == 0) first = atomicAdd(count, static_cast<uint32_t>(__popc(lanes)));
  return __shfl_sync(kFullWarp, first, 0) + static_cast<uint32_t>(__popc(lanes & lanes_below()));
}

// Puts the ids of the lanes in `lanes` on the list, of which those in `full` have met a full
// bucket.
__device__ __forceinline__ void append_missing(MissingList const& list, unsigned lanes,
                                               unsigned full, Missing const& id) {
  auto const claimed = lanes & ~full;
  if (claimed != 0) {
    auto const number = next_numbers(&list.counts->ids, claimed);
    if ((claimed >> lane_id() & 1) != 0) list.ids[number] = id;
  }
  if (full != 0) {
    auto const number = next_numbers(&list.counts->full, full);
    if ((full >> lane_id() & 1) != 0) *(list.last - number) = id;
  }
}

// ---- host ---------------------------------------------------------------------------------------

// In the last row, since all blocks read the first one, and each count would invalidate it in their
// caches.
inline MissingCounts* missing_counts(TableRef const& table) {
  auto* const counters = table.counters + (table.counter_rows - 1) * kNumCounters;
  return reinterpret_cast<MissingCounts*>(counters + kWaiting);
}

inline FullIds take_full_ids(int64_t num_ids, uint32_t* zeros, Scratch& scratch) {
  uint32_t num_bins = 32;  // whole warps
  while (int64_t{num_bins} * 2 * kIdsOfBin <= num_ids) num_bins *= 2;
  return {num_bins,
          scratch.take<uint32_t>(num_bins),
          scratch.take<FullBin>(num_bins),
          scratch.take<uint32_t>(num_ids),
          zeros,
          zeros + 1};
}

// Without its counts: a table has them.
inline MissingList take_missing(int64_t num_ids, Scratch& scratch) {
  auto* const ids = scratch.take<Missing>(num_ids);
  auto* const zeros = scratch.take<uint32_t>(4);
  return {ids,       ids + num_ids - 1, zeros,
          zeros + 1, nullptr,           take_full_ids(num_ids, zeros + 2, scratch)};
}

inline bool has_policy(LookupArgs const& args, ScorePolicy policy) {
  return std::any_of(args.tables, args.tables + args.num_tables,
                     [policy](TableRef const& table) { return table.policy == policy; });
}

template <bool kSelects>
Selection<kSelects> selection_of(LookupArgs const& args) {
  Selection<kSelects> result;
  if constexpr (kSelects) {
    int32_t order[kMaxFeatures];
    order_by_table(args, order);
    std::copy_n(args.admissions, kMaxTables, result.admissions);
    for (int32_t f = 0; f < args.num_features; ++f) result.uses[f] = args.uses[order[f]];
    result.counts_keys = std::any_of(args.admissions, args.admissions + args.num_tables,
                                     [](Admission const& a) { return counts_keys(a.rule); });
  }
  return result;
}

template <bool kSelects>
NotedRemovals<kSelects> removals_of(LookupArgs const& args) {
  NotedRemovals<kSelects> result;
  if constexpr (kSelects) {
    std::copy_n(args.removals, kMaxTables, result.of);
    std::copy_n(args.departures, kMaxTables, result.departures);
  }
  return result;
}

// Puts on the stream what is left of a lookup: its counters, and the phases after claims of empty
// slots (core/lookup.h): claims in full buckets, resolve. With kSelects, it is decided
// first which ids of tables with a rule (kCounted) are admitted.
template <bool kSelects>
cudaError_t launch_missing(SelectingCall<kSelects> const& selecting, int64_t num_ids,
                           cudaStream_t stream);

}  // namespace dynemb::cuda
