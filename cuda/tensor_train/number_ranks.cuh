// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/number_ranks.cuh: the numbers of a batch, once they are sorted: each value
// once, the rank of every number, and where the values of each prefix begin.
//
// One kernel counts the values of each tile. In the next a block adds up those of the tiles before
// its own, so no block waits for another.
#pragma once

#include <cstdint>

#include "core/distinct.h"
#include "cuda/grid/host.h"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

struct RanksCall {
  uint32_t num_items;
  uint32_t num_tiles;
  uint32_t const* keys;      // [num_items] in order
  int32_t const* positions;  // [num_items] in that order
  NumberParts parts;
  uint32_t* counts;  // [num_tiles] values that begin in each tile
  uint32_t* values;
  int32_t* inverse;
  int32_t* ranks;
  int32_t* count;
  int32_t* starts;
  int32_t* of_suffix;
};

// Few places a thread: it writes to memory in a chain of votes, so many warps hide what one waits.
constexpr int kPlaces = 4;
constexpr uint32_t kRanksTile = kPlaces * kThreads;

// The first of a thread's places; the next ones are 32 apart.
__device__ __forceinline__ uint32_t first_place() {
  return blockIdx.x * kRanksTile + threadIdx.x / 32 * (32 * kPlaces) +
         static_cast<uint32_t>(lane_id());
}

// The key at a place, and at the place before; behind the last place there is no number.
struct KeyPair {
  uint32_t before, key;

  __device__ __forceinline__ KeyPair(RanksCall const& call, uint32_t place)
      : before(place > 0 && place < call.num_items ? call.keys[place - 1] : kNoNumber),
        key(place < call.num_items ? call.keys[place] : kNoNumber) {}

  __device__ __forceinline__ bool begins_value() const { return key != kNoNumber && key != before; }
};

// Returns the sum of a number of each thread, in all threads of a block. `of_warps` is shared
// memory.
__device__ __forceinline__ uint32_t sum_of_block(uint32_t value,
                                                 uint32_t (&of_warps)[kWarpsPerBlock]) {
  auto const sum = sum_of_warp(value);
  if (lane_id() == 0) of_warps[threadIdx.x / 32] = sum;
  __syncthreads();
  uint32_t total = 0;
#pragma unroll
  for (auto const of_warp : of_warps) total += of_warp;
  return total;
}

__global__ void __launch_bounds__(kThreads)
    count_values_kernel(__grid_constant__ RanksCall const call) {
  __shared__ uint32_t of_warps[kWarpsPerBlock];
  auto const first = first_place();
  uint32_t count = 0;
#pragma unroll
  for (int u = 0; u < kPlaces; ++u) {
    count += KeyPair(call, first + static_cast<uint32_t>(u) * 32).begins_value() ? 1 : 0;
  }
  auto const total = sum_of_block(count, of_warps);
  if (threadIdx.x == 0) call.counts[blockIdx.x] = total;
}

// starts[p] = start for all p of the range, by all lanes, each with a range of its own: the first
// few by the lane itself, a long rest by the warp.
__device__ __forceinline__ void begin_prefixes(int32_t* starts, PrefixRange range, uint32_t start) {
  constexpr uint32_t kAlone = 4;
  auto const number = static_cast<int32_t>(start);
#pragma unroll
  for (uint32_t i = 0; i < kAlone; ++i) {
    if (range.begin + i < range.end) starts[range.begin + i] = number;
  }
  auto lanes = __ballot_sync(kFullWarp, range.begin + kAlone < range.end);
  for (; lanes != 0; lanes &= lanes - 1) {
    auto const lane = __ffs(static_cast<int>(lanes)) - 1;
    auto const begin = __shfl_sync(kFullWarp, range.begin, lane) + kAlone;
    auto const end = __shfl_sync(kFullWarp, range.end, lane);
    auto const of_lane = __shfl_sync(kFullWarp, number, lane);
    for (auto p = begin + static_cast<uint32_t>(lane_id()); p < end; p += 32) starts[p] = of_lane;
  }
}

// What a place writes. `before`: values that begin before it; `total`: all values of the batch.
__device__ __forceinline__ void write_place(RanksCall const& call, uint32_t place,
                                            KeyPair const& keys, uint32_t before, uint32_t total) {
  auto const first = keys.begins_value();
  auto const live = keys.key != kNoNumber;
  auto const rank = live ? static_cast<int32_t>(before) - (first ? 0 : 1) : -1;
  call.ranks[place] = rank;
  call.inverse[call.positions[place]] = rank;
  if (first) {
    call.values[before] = keys.key;
    call.of_suffix[before] = call.parts.suffix_of(keys.key);
  }
  if (place >= total) {
    call.values[place] = 0;
    call.of_suffix[place] = -1;
  }
}

__global__ void __launch_bounds__(kThreads)
    write_ranks_kernel(__grid_constant__ RanksCall const call) {
  __shared__ uint32_t earlier_of_warps[kWarpsPerBlock], all_of_warps[kWarpsPerBlock];
  __shared__ uint32_t own_of_warps[kWarpsPerBlock];
  auto const first = first_place();
  uint32_t earlier = 0, all = 0;
  for (auto t = threadIdx.x; t < call.num_tiles; t += kThreads) {
    auto const count = call.counts[t];
    all += count;
    if (t < blockIdx.x) earlier += count;
  }
  uint32_t own = 0;  // of the warp
#pragma unroll
  for (int u = 0; u < kPlaces; ++u) {
    auto const keys = KeyPair(call, first + static_cast<uint32_t>(u) * 32);
    own += static_cast<uint32_t>(__popc(__ballot_sync(kFullWarp, keys.begins_value())));
  }
  if (lane_id() == 0) own_of_warps[threadIdx.x / 32] = own;
  auto before = sum_of_block(earlier, earlier_of_warps);
  auto const total = sum_of_block(all, all_of_warps);
#pragma unroll
  for (uint32_t w = 0; w < kWarpsPerBlock; ++w) {
    if (w < threadIdx.x / 32) before += own_of_warps[w];
  }
#pragma unroll
  for (int u = 0; u < kPlaces; ++u) {
    auto const place = first + static_cast<uint32_t>(u) * 32;
    auto const exists = place < call.num_items;
    auto const keys = KeyPair(call, place);
    auto const begin = __ballot_sync(kFullWarp, keys.begins_value());
    auto const here = before + static_cast<uint32_t>(__popc(begin & lanes_below()));
    before += static_cast<uint32_t>(__popc(begin));
    PrefixRange range{0, 0}, behind{0, 0};
    if (exists) {
      write_place(call, place, keys, here, total);
      range = prefixes_at(call.parts, place == 0, keys.before, keys.key);
      if (place + 1 == call.num_items) behind = prefixes_behind(call.parts, keys.key);
    }
    begin_prefixes(call.starts, range, here);
    if (__any_sync(kFullWarp, behind.begin < behind.end)) {
      begin_prefixes(call.starts, behind, total);
    }
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) call.count[0] = static_cast<int32_t>(total);
}

inline cudaError_t rank_numbers(RanksCall const& call, cudaStream_t stream) {
  DYNEMB_CUDA_TRY(launch(count_values_kernel, call.num_tiles, stream, call));
  return launch(write_ranks_kernel, call.num_tiles, stream, call);
}

}  // namespace dynemb::cuda
