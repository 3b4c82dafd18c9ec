// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/ordered_rows.cuh: rows of a find that lie at home, read in order of address.
//
// The kernel of all rows sets such ids aside: it counts them by bucket. Three more kernels sum up
// the counts, list the ids bucket by bucket, and copy their rows. Host memory answers faster where
// neighbouring addresses follow each other. Where all rows have frames the three end at once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/grid/call.cuh"
#include "cuda/grid/host.h"
#include "cuda/tiers/chained_sum.cuh"
#include "cuda/tiers/records.cuh"
#include "cuda/tiers/row_source.cuh"

namespace dynemb::cuda {

// Of fewer ids the translation of addresses is no limit (benchmarks/log/tiers.md).
constexpr int64_t kLeastOrderedIds = int64_t{1} << 15;
constexpr uint32_t kNotAside = ~0u;

// Ids that are set aside. Buckets are counted over all tables, items over all features.
struct HomeOrder {
  uint32_t* counts;  // [buckets] 0 at first; then where the ids of a bucket begin in the list
  uint32_t* any;     // [1] 0 at first: no id is set aside
  ChainedSum sums;
  uint32_t* ranks;  // [items] number of the id among those of its bucket; or kNotAside
  uint32_t* list;   // [items] items, bucket by bucket
  int32_t* slots;   // [items] their slots
  size_t bytes;     // to clear, from `counts` on
  int64_t buckets;
  int64_t items;

  __host__ __device__ bool exists() const { return items != 0; }

  cudaError_t clear(cudaStream_t stream) const { return cudaMemsetAsync(counts, 0, bytes, stream); }
};

// Does the source lie in the home records of the table?
__device__ __forceinline__ bool is_home(RowSources const& sources, RowSource const& source) {
  auto const first = reinterpret_cast<uint64_t>(sources.tier.homes);
  auto const slots = sources.table.local_buckets * kBucketCapacity;
  auto const bytes = static_cast<uint64_t>(slots * sources.tier.record_bytes);
  return source.is_row() && source.word - first < bytes;
}

template <class Size>
struct OrderedCall {
  HomeOrder order;
  int32_t num_tables;
  int32_t num_features;
  RowSources sources[kMaxTierTables];
  uint32_t first_bucket[kMaxTierTables + 1];
  FeatureRef features[Size::features];
  uint32_t first_item[Size::features + 1];
};

// Counts become the places where the ids of each bucket begin. A thread a bucket.
__global__ void __launch_bounds__(kThreads)
    begin_buckets_kernel(__grid_constant__ HomeOrder const order) {
  if (*order.any == 0) return;
  __shared__ uint32_t of_warps[kWarpsPerBlock];
  __shared__ uint32_t before_block;
  auto const block = order.sums.number_of_block();
  auto const bucket = int64_t{block} * kThreads + threadIdx.x;
  auto const own = bucket < order.buckets ? order.counts[bucket] : 0;
  auto const up_to = sum_up_to_lane(own);
  if (lane_id() == 31) of_warps[threadIdx.x / 32] = up_to;
  __syncthreads();
  uint32_t total = 0, before = up_to - own;
  for (uint32_t w = 0; w < kWarpsPerBlock; ++w) {
    if (w < threadIdx.x / 32) before += of_warps[w];
    total += of_warps[w];
  }
  if (threadIdx.x < 32) {
    auto const sum = order.sums.before(block, {0, total}).b;
    if (threadIdx.x == 0) before_block = sum;
  }
  __syncthreads();
  // One place behind the last bucket, too: the length of the list.
  if (bucket <= order.buckets) order.counts[bucket] = before_block + before;
}

template <class Size>
__device__ __forceinline__ int32_t feature_of_item(OrderedCall<Size> const& call, uint32_t item) {
  auto const* const first_item = in_memory(call.first_item);
  int32_t low = 0, high = call.num_features;  // first_item[low] <= item < first_item[high]
  while (high - low > 1) {
    auto const middle = (low + high) / 2;
    (first_item[middle] <= item ? low : high) = middle;
  }
  return low;
}

// A thread an id.
template <class Size>
__global__ void __launch_bounds__(kThreads)
    list_items_kernel(__grid_constant__ OrderedCall<Size> const call) {
  auto const& order = call.order;
  if (*order.any == 0) return;
  auto const i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= order.items) return;
  auto const rank = order.ranks[i];
  if (rank == kNotAside) return;
  auto const item = static_cast<uint32_t>(i);
  auto const f = feature_of_item(call, item);
  auto const& feature = *in_memory(call.features + f);
  auto const slot = feature.slots[item - in_memory(call.first_item)[f]];
  auto const first = in_memory(call.first_bucket)[feature.table];
  auto const at = order.counts[first + slot / kBucketCapacity] + rank;
  order.list[at] = item;
  order.slots[at] = slot;
}

template <class Format, class Row>
__device__ __forceinline__ void store_row(Format in, FeatureRef const& feature, int64_t position,
                                          int32_t column, int32_t dim, Row const& quad) {
  auto const store = [&](auto out) {
    auto const offset = row_offset(feature.places, position, dim);
    store_quad<true>(out, element_pointer(out, feature.rows, offset), column, dim,
                     to_floats(in, quad));
  };
  if constexpr (std::is_same_v<Format, FloatVectors>) {
    store(FloatVectors{});
  } else {
    store(AnyFormat{feature.row_type, moves_vectors(feature.rows, dim)});
  }
}

// The rows of a table. Tiles take items by turns, so that all of them read neighbouring addresses.
template <class Size, class Format>
__device__ __forceinline__ void copy_listed(OrderedCall<Size> const& call,
                                            RowSources const& sources, uint32_t begin, uint32_t end,
                                            Format in) {
  auto const dim = sources.table.dim;
  auto const lanes = lanes_of_row(dim);
  auto const rank = static_cast<int32_t>(threadIdx.x) % lanes;
  auto const thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  auto const step = int64_t{gridDim.x} * kThreads / lanes;
  auto const* const homes = reinterpret_cast<char const*>(sources.tier.homes);
  for (auto i = begin + thread / lanes; i < end; i += step) {
    auto const* const row = homes + int64_t{call.order.slots[i]} * sources.tier.record_bytes;
    auto const item = call.order.list[i];
    auto const f = feature_of_item(call, item);
    auto const position = item - in_memory(call.first_item)[f];
    for (auto c = rank * 4; c < dim; c += lanes * 4) {
      store_row(in, *in_memory(call.features + f), position, c, dim, load_quad(in, row, c, dim));
    }
  }
}

template <bool kFloats, class Size>
__global__ void __launch_bounds__(kThreads)
    ordered_rows_kernel(__grid_constant__ OrderedCall<Size> const call) {
  auto const& order = call.order;
  if (*order.any == 0) return;
  for (int32_t t = 0; t < call.num_tables; ++t) {
    auto const& sources = call.sources[t];
    auto const begin = order.counts[call.first_bucket[t]];
    auto const end = order.counts[call.first_bucket[t + 1]];
    if constexpr (kFloats) {
      copy_listed(call, sources, begin, end, FloatVectors{});
    } else {
      copy_listed(call, sources, begin, end, value_format(sources.table));
    }
  }
}

// ---- host ---------------------------------------------------------------------------------------

inline int64_t bucket_blocks(HomeOrder const& order) {
  return ceil_div(order.buckets + 1, int64_t{kThreads});
}

// Of a find whose rows go one for each id, and of many of them; else there is no order.
inline HomeOrder take_home_order(TierRowsArgs const& args, Scratch& scratch) {
  auto const items = total_ids(args);
  auto const is_one = [](FeatureRef const& feature) { return feature.pooling == Pooling::kNone; };
  auto const single = std::all_of(args.features, args.features + args.num_features, is_one);
  if (args.serves == 0 || !single || items < kLeastOrderedIds || !is_countable(args)) {
    return HomeOrder{};
  }
  HomeOrder order{};
  order.items = items;
  for (int32_t t = 0; t < args.num_tables; ++t) order.buckets += args.tables[t].table.local_buckets;
  auto const words = ceil_div(order.buckets + 1, int64_t{2}) * 2;  // then sums of 64 bits
  order.bytes = static_cast<size_t>(4 * (words + 2 * bucket_blocks(order) + 2));
  order.counts = scratch.take<uint32_t>(static_cast<int64_t>(order.bytes / 4));
  auto* const sums = order.counts + words;
  auto* const ticket = sums + 2 * bucket_blocks(order);
  order.sums = {reinterpret_cast<uint64_t*>(sums), ticket};
  order.any = ticket + 1;
  order.ranks = scratch.take<uint32_t>(items);
  order.list = scratch.take<uint32_t>(items);
  order.slots = scratch.take<int32_t>(items);
  return order;
}

}  // namespace dynemb::cuda
