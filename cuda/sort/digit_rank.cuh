// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/sort/digit_rank.cuh: what a stable radix sort does with the keys of one warp, and of a
// block.
#pragma once

#include <cstdint>

#include "cuda/grid/host.h"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

constexpr int kPassBits = 8;        // of a pass at most,
constexpr int kFewestPassBits = 7;  // and at least: a kernel for each number
constexpr int kDigits = 1 << kPassBits;

// Returns the lanes with the same bit there in their digit. In four instructions, where the
// compiler takes seven: the predicate of the vote also turns its result.
__device__ __forceinline__ unsigned lanes_of_same_bit(uint32_t digit, int bit) {
#ifdef __CUDA_ARCH__
  unsigned lanes;
  asm volatile(
      "{\n"
      "  .reg .pred one;\n"
      "  .reg .b32 masked;\n"
      "  and.b32 masked, %1, %2;\n"
      "  setp.ne.u32 one, masked, 0;\n"
      "  vote.sync.ballot.b32 %0, one, 0xffffffff;\n"
      "  @!one not.b32 %0, %0;\n"
      "}"
      : "=r"(lanes)
      : "r"(digit), "r"(1u << bit));
  return lanes;
#else
  auto const one = (digit >> bit & 1) != 0;
  auto const lanes = __ballot_sync(kFullWarp, one);
  return one ? lanes : ~lanes;
#endif
}

// Lanes of `some` that have the same digit.
template <int kBits>
__device__ __forceinline__ unsigned peers_of(uint32_t digit, unsigned some) {
  auto peers = some;
#pragma unroll
  for (int bit = 0; bit < kBits; ++bit) peers &= lanes_of_same_bit(digit, bit);
  return peers;
}

// All lanes of the warp that the counts belong to call this.
__device__ __forceinline__ void clear_counts(uint32_t* counts) {
  auto* const quads = reinterpret_cast<uint4*>(counts);
#pragma unroll
  for (int i = 0; i < kDigits / 4; i += 32) quads[i + lane_id()] = {0, 0, 0, 0};
  __syncwarp();
}

// Finds how many keys of the same digit come before each of the lane's in this warp. The warp's
// keys lie side by side: those of a lane are 32 apart, from place `first` on, and exist before
// place `count`. `counts` belongs to the warp: zero before, the keys of each digit afterwards.
// Digits have kBits; kAll: every key exists.
template <int kBits = kPassBits, bool kAll = false, int kItems, class Digit>
__device__ __forceinline__ void rank_in_warp(uint32_t* counts, uint32_t first, uint32_t count,
                                             Digit const& digit_of, uint32_t (&ranks)[kItems]) {
#pragma unroll
  for (int u = 0; u < kItems; ++u) {
    auto const exists = kAll || first + u * 32 < count;
    auto const digit = digit_of(u);
    auto const peers = peers_of<kBits>(digit, kAll ? kFullWarp : __ballot_sync(kFullWarp, exists));
    auto const before = counts[digit];
    ranks[u] = before + static_cast<uint32_t>(__popc(peers & lanes_below()));
    __syncwarp();
    if (exists && (peers & lanes_below()) == 0) counts[digit] = before + __popc(peers);
    __syncwarp();
  }
}

// How many keys of the thread's digit the warps of a block have ranked. Afterwards `ranked` holds
// those in the warps before.
__device__ __forceinline__ uint32_t total_of_warps(uint32_t (&ranked)[kWarpsPerBlock][kDigits]) {
  uint32_t total = 0;
#pragma unroll
  for (int w = 0; w < kWarpsPerBlock; ++w) {
    auto const own = ranked[w][threadIdx.x];
    ranked[w][threadIdx.x] = total;
    total += own;
  }
  return total;
}

// Returns the sum of the values of the threads before, of two numbers at once.
__device__ __forceinline__ uint2 sum_before(uint2 value, uint2 (&of_warps)[kWarpsPerBlock]) {
  auto sum = value;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    auto const x = __shfl_up_sync(kFullWarp, sum.x, distance);
    auto const y = __shfl_up_sync(kFullWarp, sum.y, distance);
    if (lane_id() >= distance) sum.x += x, sum.y += y;
  }
  auto const warp = static_cast<int>(threadIdx.x) / 32;
  if (lane_id() == 31) of_warps[warp] = sum;
  __syncthreads();
  uint2 before{sum.x - value.x, sum.y - value.y};
  for (int w = 0; w < warp; ++w) before.x += of_warps[w].x, before.y += of_warps[w].y;
  return before;
}

}  // namespace dynemb::cuda
