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
#include "cuda/tiers/table_blocks.cuh"

namespace dynemb::cuda {

// In `places`, between the kernels: the slot's number decides.
constexpr int32_t kNumberedPlace = INT32_MIN;

struct FetchedTable {
  FetchTable args;
  RecordParts parts;
  SlotBits homeless;  // slots without a frame
  uint32_t* before;   // [buckets] how many of these come before a bucket
};

struct FetchCall {
  TableBlocks of_ids;     // of the first kernel, and of the last one behind bring_blocks
  TableBlocks numbering;  // of the second kernel
  ChainedSum numbers;
  uint32_t* any;          // 1: a slot has no frame; else only the first kernel has work
  uint32_t bring_blocks;  // of the last kernel, the first ones
  FetchedTable tables[kMaxTierTables];
};

// The numbers of the slots whose rows come in this round: from the first on, as many as there are
// spill rows.
__device__ __forceinline__ int64_t first_of_round(FetchTable const& args) {
  return max(int64_t{*args.round}, int64_t{0}) * args.tier.spill_rows;
}

// Whether a slot is not that of its id any more, or of no table.
__device__ __forceinline__ bool is_lost(FetchTable const& args, int32_t slot, int64_t i,
                                        bool checks_keys) {
  if (!is_live(slot, num_slots(args.table))) return true;
  return checks_keys && *key_at(args.table, slot) != args.keys[i];
}

// Returns the place of an id; `in_first` says whether this is the first round.
__device__ __forceinline__ int32_t note_id(FetchedTable const& call, int64_t i, bool checks_keys,
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
  auto const t = call.of_ids.table_of(blockIdx.x);
  auto const& one = call.tables[t];
  auto const& args = one.args;
  auto const step = int64_t{call.of_ids.of(t)} * kThreads;
  auto const first = int64_t{blockIdx.x - call.of_ids.first[t]} * kThreads + threadIdx.x;
  auto const in_first = *args.round == 0;
  auto const checks_keys = args.keys != nullptr && !keeps_slots(args.table);
  if (first == 0) args.counts[0] = args.counts[1] = 0;
  auto homeless = false;
  for (auto i = first; i < args.num_ids; i += step) {
    auto const place = note_id(one, i, checks_keys, in_first);
    args.places[i] = place;
    homeless |= place == kNumberedPlace;
  }
  if (__any_sync(kFullWarp, homeless) && lane_id() == 0) *call.any = 1;
}

// How many slots have no frame, and how many of their rows come in this round.
__device__ __forceinline__ void note_counts(FetchTable const& args, uint32_t homeless) {
  auto const left = int64_t{homeless} - first_of_round(args);
  auto const here = min(max(left, int64_t{0}), int64_t{args.tier.spill_rows});
  args.counts[0] = static_cast<int32_t>(here);
  args.counts[1] = static_cast<int32_t>(homeless);
}

// Each bucket has a thread.
__global__ void __launch_bounds__(kThreads)
    number_homeless_kernel(__grid_constant__ FetchCall const call) {
  if (*call.any == 0) return;
  __shared__ uint32_t of_warps[kWarpsPerBlock];
  __shared__ uint32_t before_block;
  auto const number_of_all = call.numbers.number_of_block();
  auto const t = call.numbering.table_of(number_of_all);
  auto const block = number_of_all - call.numbering.first[t];
  auto const& one = call.tables[t];
  auto const& args = one.args;
  auto const bucket = int64_t{block} * kThreads + threadIdx.x;
  auto const exists = bucket < args.table.local_buckets;
  auto const words = exists ? one.homeless.of_bucket(bucket) : uint4{0, 0, 0, 0};
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
    auto const chain = call.numbers.from(call.numbering.first[t]);
    auto const before = chain.before(block, {0, total});
    if (threadIdx.x == 0) {
      before_block = before.b;
      if (block + 1 == call.numbering.of(t)) note_counts(args, before.b + total);
    }
  }
  __syncthreads();
  number += before_block;
  if (exists) one.before[bucket] = number;
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

// The first blocks of a kernel call this.
__device__ __forceinline__ void bring_rows(FetchedTable const& call, uint32_t blocks) {
  auto const& args = call.args;
  auto const count = int64_t{args.counts[0]};
  auto const lanes = lanes_of_record(call.parts);
  auto const tile = RowTile(lanes);
  auto const first_spill = first_spill_row(args.tier, args.table);
  auto const step = int64_t{blocks} * kThreads / lanes;
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
    if (tile.rank == 0) args.tier.location[slot] = kHomeLocation;
  }
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  count_in_tier(args.tier, kTierUpdatedHome, static_cast<uint64_t>(count));
  count_in_tier(args.tier, kTierWrittenBack, static_cast<uint64_t>(count));
}

// Of the ids whose row came, or comes in another round.
__device__ __forceinline__ void place_ids(FetchedTable const& call, int64_t first, int64_t step) {
  auto const& args = call.args;
  if (args.counts[1] == 0) return;
  auto const first_number = first_of_round(args);
  auto const first_spill = static_cast<int32_t>(first_spill_row(args.tier, args.table));
  for (auto i = first; i < args.num_ids; i += step) {
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

__global__ void __launch_bounds__(kThreads)
    bring_rows_kernel(__grid_constant__ FetchCall const call) {
  if (*call.any == 0) return;
  if (blockIdx.x < call.bring_blocks) {
    for (int32_t t = 0; t < call.of_ids.tables; ++t) bring_rows(call.tables[t], call.bring_blocks);
    return;
  }
  auto const block = blockIdx.x - call.bring_blocks;
  auto const t = call.of_ids.table_of(block);
  auto const first = int64_t{block - call.of_ids.first[t]} * kThreads + threadIdx.x;
  place_ids(call.tables[t], first, int64_t{call.of_ids.of(t)} * kThreads);
}

// ---- host ---------------------------------------------------------------------------------------

struct FetchScratch {
  FetchCall call;
  SlotNumbers numbers;

  FetchScratch(FetchArgs const& args, Scratch& scratch)
      : call{}, numbers(args, count_blocks(args), 1, scratch) {
    call.numbers = numbers.sums;
    call.any = numbers.any;
    int64_t useful = 0;
    for (int32_t t = 0; t < args.num_tables; ++t) {
      auto const& one = args.tables[t];
      call.tables[t] = {one, record_parts(one.table), numbers.slots[t],
                        scratch.take<uint32_t>(one.table.local_buckets)};
      auto const most = std::min<int64_t>(one.num_ids, one.tier.spill_rows);
      useful += ceil_div(most * lanes_of_record(call.tables[t].parts), kThreads);
    }
    call.bring_blocks = static_cast<uint32_t>(bus_blocks(useful));
  }

 private:
  int64_t count_blocks(FetchArgs const& args) {
    for (int32_t t = 0; t < args.num_tables; ++t) {
      auto const& one = args.tables[t];
      call.of_ids.add(blocks_of_ids(one));
      call.numbering.add(ceil_div(one.table.local_buckets, kThreads));
    }
    return call.numbering.total();
  }
};

}  // namespace dynemb::cuda
