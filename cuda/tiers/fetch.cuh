// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/fetch.cuh: where an update finds the rows of some slots; those without a frame come to
// spill rows.
//
// Three kernels: every id notes its slot if that has no frame; the noted slots are numbered in
// order; then their records come in, while other blocks translate the ids.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/slot.h"
#include "core/tiers/tier_args.h"
#include "cuda/grid/host.h"
#include "cuda/grid/initial_rows.cuh"
#include "cuda/tiers/records.cuh"
#include "cuda/tiers/slot_bits.cuh"

namespace dynemb::cuda {

// In `places`, between the kernels: the slot's number decides.
constexpr int32_t kNumberedPlace = INT32_MIN;

struct FetchCall {
  FetchArgs args;
  RecordParts parts;
  SlotBits homeless;      // slots without a frame
  ChainedSum numbers;     //
  uint32_t* before;       // [buckets] how many of these come before a bucket
  uint32_t bring_blocks;  // of the last kernel, the first ones
};

// The numbers of the slots whose rows come in this round: from the first on, as many as there are
// spill rows.
__device__ __forceinline__ int64_t first_of_round(FetchArgs const& args) {
  return max(int64_t{*args.round}, int64_t{0}) * args.tier.spill_rows;
}

// Whether a slot is not that of its id any more, or of no table.
__device__ __forceinline__ bool is_lost(FetchArgs const& args, int32_t slot, int64_t i,
                                        bool checks_keys) {
  if (!is_live(slot, num_slots(args.table))) return true;
  return checks_keys && *key_at(args.table, slot) != args.keys[i];
}

// The place of an id; `in_first`: in the first round.
__device__ __forceinline__ int32_t note_id(FetchCall const& call, int64_t i, bool checks_keys,
                                           bool in_first) {
  auto const& args = call.args;
  auto const slot = args.slots[i];
  if (slot < 0) return in_first ? slot == kNumberedPlace ? kMissingSlot : slot : -1;
  if (is_lost(args, slot, i, checks_keys)) return in_first ? kLostPlace : -1;
  auto const frame = frame_of(args.tier, slot);
  if (frame < 0) {
    call.homeless.add(slot);
    return kNumberedPlace;
  }
  if (!in_first) return -1;
  auto const row = frame_row(args.tier, slot / kBucketCapacity, frame);
  auto* const owner = args.tier.owners + row;
  auto const word = __ldcg(owner);
  if ((word & kDirtyFrame) == 0) atomicOr(owner, kDirtyFrame);
  if ((word & kNewFrame) != 0) atomicAnd(owner, ~kNewFrame);
  return static_cast<int32_t>(row);
}

__global__ void __launch_bounds__(kThreads)
    note_homeless_kernel(__grid_constant__ FetchCall const call) {
  auto const& args = call.args;
  auto const step = int64_t{gridDim.x} * kThreads;
  auto const first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  auto const in_first = *args.round == 0;
  auto const checks_keys = args.keys != nullptr && !keeps_slots(args.table);
  for (auto i = first; i < args.tier.spill_rows; i += step) args.spilled[i] = -1;
  for (auto i = first; i < args.num_ids; i += step) {
    args.places[i] = note_id(call, i, checks_keys, in_first);
  }
}

// A thread a bucket.
__global__ void __launch_bounds__(kThreads)
    number_homeless_kernel(__grid_constant__ FetchCall const call) {
  __shared__ uint32_t of_warps[kWarpsPerBlock];
  __shared__ uint32_t before_block;
  auto const& args = call.args;
  auto const block = call.numbers.number_of_block();
  auto const bucket = int64_t{block} * kThreads + threadIdx.x;
  auto const exists = bucket < args.table.local_buckets;
  auto const words = exists ? call.homeless.of_bucket(bucket) : uint4{0, 0, 0, 0};
  auto const own = count_bits(words);
  auto const up_to = sum_up_to_lane(own);
  if (lane_id() == 31) of_warps[threadIdx.x / 32] = up_to;
  __syncthreads();
  uint32_t total = 0, number = up_to - own;
  for (uint32_t w = 0; w < kWarpsPerBlock; ++w) {
    if (w < threadIdx.x / 32) number += of_warps[w];
    total += of_warps[w];
  }
  if (threadIdx.x < 32) {
    auto const before = call.numbers.before(block, {0, total});
    if (threadIdx.x == 0) {
      before_block = before.b;
      if (block == gridDim.x - 1) *args.count = static_cast<int32_t>(before.b + total);
    }
  }
  __syncthreads();
  number += before_block;
  if (exists) call.before[bucket] = number;
  if (own == 0) return;
  auto index = int64_t{number} - first_of_round(args);
  for (int w = 0; w < kBitWords; ++w) {
    auto rest = w == 0 ? words.x : w == 1 ? words.y : w == 2 ? words.z : words.w;
    for (; rest != 0; rest &= rest - 1, ++index) {
      if (index < 0 || index >= args.tier.spill_rows) continue;
      auto const in_bucket = w * 32 + __ffs(static_cast<int>(rest)) - 1;
      args.spilled[index] = static_cast<int32_t>(bucket * kBucketCapacity + in_bucket);
    }
  }
}

// How many rows come in this round.
__device__ __forceinline__ int64_t rows_of_round(FetchArgs const& args) {
  auto const left = int64_t{*args.count} - first_of_round(args);
  return min(max(left, int64_t{0}), int64_t{args.tier.spill_rows});
}

__device__ __forceinline__ void bring_rows(FetchCall const& call) {
  auto const& args = call.args;
  auto const count = rows_of_round(args);
  auto const lanes = lanes_of_record(call.parts);
  auto const tile = RowTile(lanes);
  auto const first_spill = first_spill_row(args.tier, args.table);
  auto const step = int64_t{call.bring_blocks} * kThreads / lanes;
  for (auto i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / lanes; i < count; i += step) {
    auto const slot = args.spilled[i];
    if (!is_live(slot, num_slots(args.table))) continue;
    auto const row = first_spill + i;
    auto const fresh = is_fresh(args.tier, slot);
    __syncwarp(tile.mask());  // all lanes have read the place
    if (!fresh) {
      auto const* const record = record_at(args.tier.homes, args.tier.record_bytes, slot);
      bring_record(call.parts, tile, record, row);
      continue;
    }
    auto const filler = SlotFiller(args.table);
    if (writes_rows(args.table.initializer.kind)) {
      filler.fill_row(tile, *key_at(args.table, slot), static_cast<int32_t>(row));
    }
    filler.fill_states(tile, static_cast<int32_t>(row));
    if (tile.rank == 0) args.tier.place[slot] = kHomePlace;
  }
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  count_in_tier(args.tier, kTierUpdatedHome, static_cast<uint64_t>(count));
  count_in_tier(args.tier, kTierWrittenBack, static_cast<uint64_t>(count));
}

__global__ void __launch_bounds__(kThreads)
    bring_rows_kernel(__grid_constant__ FetchCall const call) {
  if (blockIdx.x < call.bring_blocks) return bring_rows(call);
  auto const& args = call.args;
  if (*args.count == 0) return;
  auto const first_number = first_of_round(args);
  auto const first_spill = static_cast<int32_t>(first_spill_row(args.tier, args.table));
  auto const step = int64_t{gridDim.x - call.bring_blocks} * kThreads;
  auto i = int64_t{blockIdx.x - call.bring_blocks} * kThreads + threadIdx.x;
  for (; i < args.num_ids; i += step) {
    if (args.places[i] != kNumberedPlace) continue;
    auto const slot = args.slots[i];
    auto const bucket = slot / kBucketCapacity;
    auto const words = call.homeless.of_bucket(bucket);
    auto const number =
        call.before[bucket] + count_before(words, static_cast<uint32_t>(slot % kBucketCapacity));
    auto const index = int64_t{number} - first_number;
    auto const comes = index >= 0 && index < args.tier.spill_rows;
    args.places[i] = comes ? first_spill + static_cast<int32_t>(index) : -1;
  }
}

// ---- host ---------------------------------------------------------------------------------------

inline int64_t numbering_blocks(TableRef const& table) {
  return ceil_div(table.local_buckets, kThreads);
}

struct FetchScratch {
  SlotNumbers numbers;
  FetchCall call;

  FetchScratch(FetchArgs const& args, Scratch& scratch)
      : numbers(args.table, numbering_blocks(args.table), scratch),
        call{args,
             record_parts(args.table),
             numbers.slots,
             numbers.sums,
             scratch.take<uint32_t>(args.table.local_buckets),
             0} {
    auto const most = std::min<int64_t>(args.num_ids, args.tier.spill_rows);
    auto const useful = ceil_div(most * lanes_of_record(call.parts), kThreads);
    call.bring_blocks = static_cast<uint32_t>(bus_blocks(useful));
  }
};

}  // namespace dynemb::cuda
