// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/table/rule.cu: a rule counts rows or removes them, and counts of uses decay: one pass over
// the entries of the index.
#include "core/rule.h"
#include "core/vacate.h"
#include "cuda/grid/host.h"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {
namespace {

constexpr int kInFlight = 4;  // entries that a thread loads before it looks at the first
constexpr int kSlotsPerTurn = kThreads * kInFlight;
constexpr int kBlocksPerMultiprocessor = 4;  // so a thread has at most 64 registers
static_assert(kSlotsPerTurn % kBucketCapacity == 0);

// Calls function(entry, slot) for all slots of some buckets; by all threads of the grid. The lanes
// of a warp call it together: there are a multiple of 32 slots. Past the end entries are empty.
template <class Function>
__device__ __forceinline__ void for_each_slot(TableRef const& table, BucketRange const& buckets,
                                              Function const& function) {
  auto const slots = table.local_buckets * kBucketCapacity;
  auto const begin = buckets.first * kBucketCapacity;
  auto const count = buckets.count * kBucketCapacity;
  auto const step = int64_t{gridDim.x} * kSlotsPerTurn;
  for (auto first = int64_t{blockIdx.x} * kSlotsPerTurn + threadIdx.x; first < count;
       first += step) {
    Entry entries[kInFlight];
    int64_t at[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      auto const number = first + i * kThreads;
      at[i] = begin + number - (begin + number < slots ? 0 : slots);
      entries[i] = number < count ? *entry_at(table, static_cast<int32_t>(at[i]))
                                  : Entry{kEmptyKey, kEmptyScore};
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) function(entries[i], at[i]);
  }
}

template <class Function>
__device__ __forceinline__ void for_each_slot(TableRef const& table, Function const& function) {
  for_each_slot(table, {0, table.local_buckets}, function);
}

// Adds 1 to a bin; called by whole warps. Often all lanes have the same bin, since scores are
// alike: then one lane adds for all.
__device__ __forceinline__ void add_to_bin(uint32_t* bins, int32_t bin) {
  auto const same = __all_sync(kFullWarp, bin == __shfl_sync(kFullWarp, bin, 0));
  if (bin < 0) return;
  if (!same) {
    atomicAdd(bins + bin, 1u);
  } else if (lane_id() == 0) {
    atomicAdd(bins + bin, 32u);
  }
}

__device__ __forceinline__ void set_bits(uint32_t* words, uint64_t bits) {
  atomicOr(words, static_cast<uint32_t>(bits));
  atomicOr(words + 1, static_cast<uint32_t>(bits >> 32));
}

__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    count_rule_kernel(__grid_constant__ RuleArgs const args) {
  __shared__ uint32_t counts[kNumCountWords];
  for (auto i = threadIdx.x; i < kNumCountWords; i += kThreads) counts[i] = 0;
  __syncthreads();
  RuleBins const bins(args);
  uint64_t any_one = 0, any_zero = 0;
  for_each_slot(args.table, bins.buckets(args.table), [&](Entry const& entry, int64_t slot) {
    auto const place = bins.of(args, entry, slot);
    add_to_bin(counts, place.bin);
    if (place.bin < 0) return;
    any_one |= place.score;
    any_zero |= ~place.score;
  });
  set_bits(counts + kAnyOneWord, any_one);
  set_bits(counts + kAnyZeroWord, any_zero);
  __syncthreads();
  for (auto i = threadIdx.x; i < 2 * kRankBins; i += kThreads) {
    if (counts[i] > 0) atomicAdd(args.result + i, counts[i]);
  }
  auto const bits = kAnyOneWord + static_cast<int>(threadIdx.x);
  if (bits < kNumCountWords && counts[bits] != 0) atomicOr(args.result + bits, counts[bits]);
}

__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    erase_rule_kernel(__grid_constant__ RuleArgs const args) {
  __shared__ uint32_t removed;
  RuleErasure const erasure(args);
  if (erasure.removes_none()) return;
  if (threadIdx.x == 0) removed = 0;
  __syncthreads();
  uint32_t mine = 0;
  for_each_slot(args.table, [&](Entry const& entry, int64_t slot) {
    if (!erasure.removes(args, entry, slot)) return;
    vacate(args.table, args.removals, static_cast<int32_t>(slot));
    ++mine;
  });
  if (mine > 0) atomicAdd(&removed, mine);
  __syncthreads();
  if (threadIdx.x != 0 || removed == 0) return;
  atomicAdd(args.result, removed);
  count_left(args.table, kRemovedByRule, removed);
}

__global__ void __launch_bounds__(kThreads) decay_kernel(__grid_constant__ DecayArgs const args) {
  auto const factor = *args.factor;
  for_each_slot(args.table, [&](Entry const& entry, int64_t slot) {
    auto const score = decayed_score(entry.score, factor);
    if (score != entry.score) *score_at(args.table, static_cast<int32_t>(slot)) = score;
  });
}

// For all slots: which ones a count needs only the device knows.
int64_t blocks_for(TableRef const& table) {
  auto const turns = ceil_div(table.local_buckets * kBucketCapacity, kSlotsPerTurn);
  return persistent_blocks(turns, kBlocksPerMultiprocessor);
}

}  // namespace

size_t count_rule_scratch_bytes(RuleArgs const& /*args*/) { return 0; }

cudaError_t count_rule(RuleArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  constexpr size_t kBytes = sizeof(uint32_t) * kNumCountWords;
  DYNEMB_CUDA_TRY(cudaMemsetAsync(args.result, 0, kBytes, stream));
  return launch(count_rule_kernel, blocks_for(args.table), stream, args);
}

size_t erase_rule_scratch_bytes(RuleArgs const& /*args*/) { return 0; }

cudaError_t erase_rule(RuleArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  DYNEMB_CUDA_TRY(cudaMemsetAsync(args.result, 0, sizeof(uint32_t), stream));
  return launch(erase_rule_kernel, blocks_for(args.table), stream, args);
}

size_t decay_scratch_bytes(DecayArgs const& /*args*/) { return 0; }

cudaError_t decay(DecayArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  return launch(decay_kernel, blocks_for(args.table), stream, args);
}

}  // namespace dynemb::cuda
