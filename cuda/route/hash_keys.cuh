// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/route/hash_keys.cuh: the keys by which the ids of a route are sorted, and the clearing of
// what the sort and the kernels behind it need as zeros.
#pragma once

#include <cstdint>

#include "cuda/grid/zeros.cuh"
#include "cuda/route/groups.cuh"

namespace dynemb::cuda {

struct RouteKeysCall {
  Key const* ids;
  uint32_t* keys;
  SortTally tally;
  Zeros zeros;
  int64_t items_of_row;
  RouteSegments segments;
  HashFactors hash[kMaxTables];  // of each segment
};

// Holds the items of a row of the tally.
struct RowRange {
  int32_t segment;
  uint32_t begin, end;
};

__device__ __forceinline__ RowRange range_of_row(RouteKeysCall const& call, uint32_t row) {
  auto const& segments = call.segments;
  auto const s = segment_at(segments.first_row, segments.count, row);
  auto const size = static_cast<uint32_t>(call.items_of_row);
  auto const begin = segments.first_item[s] + (row - segments.first_row[s]) * size;
  return {s, begin, min(begin + size, segments.first_item[s + 1])};
}

__global__ void __launch_bounds__(kKeysThreads, 2)
    route_keys_kernel(__grid_constant__ RouteKeysCall const call) {
  __shared__ uint32_t counts[kDigits];
  if (threadIdx.x < kDigits) counts[threadIdx.x] = 0;
  call.tally.clear(blockIdx.x * kKeysThreads + threadIdx.x, gridDim.x * kKeysThreads);
  call.zeros.clear(blockIdx.x, gridDim.x);
  __syncthreads();
  auto const range = range_of_row(call, blockIdx.x);
  auto const hash = call.hash[range.segment];
  constexpr int kInFlight = kIdsOfRow / kKeysThreads;
  for (auto base = range.begin + threadIdx.x; base < range.end; base += kInFlight * kKeysThreads) {
    Key ids[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      auto const i = base + u * kKeysThreads;
      ids[u] = i < range.end ? call.ids[i] : kEmptyKey;
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      auto const i = base + u * kKeysThreads;
      if (i >= range.end) break;
      auto const key = sort_key(ids[u], hash);
      call.keys[i] = key;
      atomicAdd(counts + key % kDigits, 1u);
    }
  }
  __syncthreads();
  if (threadIdx.x < kDigits)
    call.tally.rows[blockIdx.x * kDigits + threadIdx.x] = counts[threadIdx.x];
}

}  // namespace dynemb::cuda
