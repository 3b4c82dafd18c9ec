// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/slot_bits.cuh: a set of slots, one bit each, four words a bucket.
//
// The distinct slots of a batch in order, without a sort: every id sets the bit of its slot, and
// then the buckets are read one after the other. That is 16 bytes a bucket, of 2 KiB in the index.
#pragma once

#include <cstdint>

#include "core/table_ref.h"
#include "core/tiers/tier_args.h"
#include "cuda/grid/host.h"
#include "cuda/grid/warp.cuh"
#include "cuda/tiers/chained_sum.cuh"

namespace dynemb::cuda {

constexpr int kBitWords = kBucketCapacity / 32;

struct SlotBits {
  uint32_t* words;  // [buckets * kBitWords]

  // A popular id finds its bit set: atomics on one word wait for each other.
  __device__ __forceinline__ void add(int32_t slot) const {
    auto* const word = words + slot / 32;
    auto const bit = 1u << (slot % 32);
    if ((__ldcg(word) & bit) == 0) atomicOr(word, bit);
  }

  // Whether a slot of a bucket is in the set, given the words of the bucket.
  static __device__ __forceinline__ bool has(uint4 const& bucket, uint32_t in_bucket) {
    auto const w = in_bucket / 32;
    auto const word = w == 0 ? bucket.x : w == 1 ? bucket.y : w == 2 ? bucket.z : bucket.w;
    return (word >> (in_bucket % 32) & 1) != 0;
  }

  __device__ __forceinline__ uint4 of_bucket(int64_t bucket) const {
    return reinterpret_cast<uint4 const*>(words)[bucket];
  }
};

// The sets of the tables of a call and the chain of sums that numbers their slots. They have to be
// 0 at first, and lie side by side.
struct SlotNumbers {
  SlotBits slots[kMaxTierTables];
  int64_t words;  // of a set of every table: the second ones follow the first ones
  ChainedSum sums;
  uint32_t* any;  // set to 1 where later kernels have something to do
  size_t bytes;

  // `blocks`: of the kernel that adds up. `sets`: of each table.
  template <class Args>
  SlotNumbers(Args const& args, int64_t blocks, int64_t sets, Scratch& scratch) : words(0) {
    for (int32_t t = 0; t < args.num_tables; ++t) {
      words += args.tables[t].table.local_buckets * kBitWords;  // 16 bytes a bucket
    }
    auto const ticket = sets * words + 2 * blocks;
    bytes = static_cast<size_t>(4 * (ticket + 2));
    auto* const first = scratch.take<uint64_t>(ceil_div(static_cast<int64_t>(bytes), 8));
    auto* next = reinterpret_cast<uint32_t*>(first);
    sums = {first + sets * words / 2, next + ticket};
    any = next + ticket + 1;
    for (int32_t t = 0; t < args.num_tables; ++t) {
      slots[t] = {next};
      next += args.tables[t].table.local_buckets * kBitWords;
    }
  }

  cudaError_t clear(cudaStream_t stream) const {
    return cudaMemsetAsync(slots[0].words, 0, bytes, stream);
  }
};

__device__ __forceinline__ uint32_t count_bits(uint4 const& words) {
  return static_cast<uint32_t>(__popc(words.x) + __popc(words.y) + __popc(words.z) +
                               __popc(words.w));
}

// Returns how many slots of the set come before a place in its bucket.
__device__ __forceinline__ uint32_t count_before(uint4 const& words, uint32_t in_bucket) {
  auto const below = (1u << (in_bucket % 32)) - 1;
  auto const w = in_bucket / 32;
  uint32_t count = 0;
  count += static_cast<uint32_t>(__popc(w > 0 ? words.x : words.x & below));
  if (w >= 1) count += static_cast<uint32_t>(__popc(w > 1 ? words.y : words.y & below));
  if (w >= 2) count += static_cast<uint32_t>(__popc(w > 2 ? words.z : words.z & below));
  if (w >= 3) count += static_cast<uint32_t>(__popc(words.w & below));
  return count;
}

}  // namespace dynemb::cuda
