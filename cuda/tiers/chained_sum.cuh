// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/chained_sum.cuh: sums over all blocks before one, within one kernel: as the tiles of
// the sort do it (cuda/sort/segment_sort.cuh), for two counts at a time.
#pragma once

#include <cstdint>

#include "core/atomic.h"
#include "cuda/grid/host.h"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

// Holds two counts below 2^31, side by side.
struct CountPair {
  uint32_t a, b;
};

struct ChainedSum {
  static constexpr uint64_t kOwn = uint64_t{1} << 62;  // of this block alone
  static constexpr uint64_t kAll = uint64_t{2} << 62;  // with all blocks before it
  static constexpr uint64_t kCounts = kOwn - 1;

  uint64_t* words;   // [blocks], 0 at first
  uint32_t* ticket;  // 0 at first

  // Returns the chain of the blocks from `first` on.
  __device__ __forceinline__ ChainedSum from(uint32_t first) const {
    return {words + first, ticket};
  }

  // Blocks are numbered as they begin, so a block waits for running ones only. All threads call
  // this.
  __device__ __forceinline__ uint32_t number_of_block() const {
    __shared__ uint32_t number;
    if (threadIdx.x == 0) number = atomicAdd(ticket, 1u);
    __syncthreads();
    return number;
  }

  // Returns the sum over the blocks before this one. The lanes of one warp call this.
  __device__ __forceinline__ CountPair before(uint32_t block, CountPair const& own) const {
    auto const counts = uint64_t{own.a} << 31 | own.b;
    if (lane_id() == 0) atomic_store(words + block, counts | (block == 0 ? kAll : kOwn));
    uint64_t sum = 0;
    for (auto next = block; next > 0;) {
      auto const lane = static_cast<uint32_t>(lane_id());
      uint64_t word = kAll;
      if (lane < next) {
        do word = atomic_load(words + (next - 1 - lane));
        while (word == 0);
      }
      auto const known = __ballot_sync(kFullWarp, (word & kAll) != 0);
      auto const last = known == 0 ? 31 : __ffs(static_cast<int>(known)) - 1;
      sum += sum_of_warp(static_cast<int>(lane) <= last ? word & kCounts : 0);
      next = known != 0 ? 0 : next - 32;
    }
    if (lane_id() == 0 && block != 0) atomic_store(words + block, (sum + counts) | kAll);
    constexpr uint64_t kCount = (uint64_t{1} << 31) - 1;
    return {static_cast<uint32_t>(sum >> 31), static_cast<uint32_t>(sum & kCount)};
  }
};

}  // namespace dynemb::cuda
