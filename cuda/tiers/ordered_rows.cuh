// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/ordered_rows.cuh: rows of a find that lie at home, read in order of address.
//
// The kernel of all rows sets such ids aside: it counts them by bucket. Then a few blocks sum up
// the counts, list the ids bucket by bucket, and copy their rows. Host memory answers faster where
// neighbouring addresses follow each other.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/grid/call.cuh"
#include "cuda/grid/host.h"
#include "cuda/tiers/records.cuh"
#include "cuda/tiers/row_source.cuh"

namespace dynemb::cuda {

// Of fewer ids the translation of addresses is no limit (benchmarks/log/tiers.md).
constexpr int64_t kLeastOrderedIds = int64_t{1} << 15;
constexpr uint32_t kNotAside = ~0u;

// Ids that are set aside. Buckets are counted over all tables, items over all features.
struct HomeOrder {
  uint32_t* counts;   // [buckets] 0 at first; then where the ids of a bucket begin in the list
  uint32_t* arrived;  // [1] blocks at a barrier, 0 at first
  uint32_t* any;      // [1] 0 at first: no id is set aside
  uint32_t* sums;     // [blocks]
  uint32_t* ranks;    // [items] number of the id among those of its bucket; or kNotAside
  uint32_t* list;     // [items] items, bucket by bucket
  int64_t buckets;
  int64_t items;

  __host__ __device__ bool exists() const { return items != 0; }

  cudaError_t clear(cudaStream_t stream) const {
    return cudaMemsetAsync(counts, 0, sizeof(uint32_t) * static_cast<size_t>(buckets + 3), stream);
  }
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

// Once all blocks have arrived for the `round`-th time. There are no more of them than the GPU has
// room for at once (launch_ordered).
__device__ __forceinline__ void wait_for_all(uint32_t* arrived, uint32_t round) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1u);
    while (*static_cast<uint32_t volatile*>(arrived) < round * gridDim.x) __nanosleep(64);
    __threadfence();
  }
  __syncthreads();
}

// The sum of what the threads before this one have, and by all threads of a block the total.
struct SumOfBlock {
  uint32_t before, total;

  __device__ __forceinline__ explicit SumOfBlock(uint32_t own) {
    __shared__ uint32_t of_warps[kWarpsPerBlock];
    auto const up_to = sum_up_to_lane(own);
    __syncthreads();
    if (lane_id() == 31) of_warps[threadIdx.x / 32] = up_to;
    __syncthreads();
    before = up_to - own;
    total = 0;
    for (uint32_t w = 0; w < kWarpsPerBlock; ++w) {
      if (w < threadIdx.x / 32) before += of_warps[w];
      total += of_warps[w];
    }
  }
};

// Counts become the places where the ids of each bucket begin. Each block sums up a range.
__device__ __forceinline__ void sum_up_counts(HomeOrder const& order) {
  auto const of_block = ceil_div(order.buckets, gridDim.x);
  auto const begin = min(order.buckets, of_block * blockIdx.x);
  auto const end = min(order.buckets, begin + of_block);
  uint32_t own = 0;
  for (auto b = begin + threadIdx.x; b < end; b += kThreads) own += order.counts[b];
  auto const total = SumOfBlock(own).total;
  if (threadIdx.x == 0) order.sums[blockIdx.x] = total;
  wait_for_all(order.arrived, 1);
  uint32_t earlier = 0;
  for (auto b = threadIdx.x; b < blockIdx.x; b += kThreads) earlier += __ldcg(order.sums + b);
  auto before = SumOfBlock(earlier).total;
  for (auto first = begin; first < end; first += kThreads) {
    auto const b = first + threadIdx.x;
    auto const count = b < end ? order.counts[b] : 0;
    auto const sum = SumOfBlock(count);
    if (b < end) order.counts[b] = before + sum.before;
    before += sum.total;
  }
  if (blockIdx.x + 1 == gridDim.x && threadIdx.x == 0) order.counts[order.buckets] = before;
  wait_for_all(order.arrived, 2);
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

template <class Size>
__device__ __forceinline__ void list_items(OrderedCall<Size> const& call) {
  auto const& order = call.order;
  auto const step = int64_t{gridDim.x} * kThreads;
  for (auto i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < order.items; i += step) {
    auto const rank = order.ranks[i];
    if (rank == kNotAside) continue;
    auto const item = static_cast<uint32_t>(i);
    auto const f = feature_of_item(call, item);
    auto const& feature = *in_memory(call.features + f);
    auto const first = in_memory(call.first_bucket)[feature.table];
    auto const slot = feature.slots[item - in_memory(call.first_item)[f]];
    order.list[__ldcg(order.counts + first + slot / kBucketCapacity) + rank] = item;
  }
  wait_for_all(order.arrived, 3);
}

// Where the row of a listed item comes from, and where it goes.
struct ListedRow {
  char const* from;  // null: nothing is listed
  int32_t feature;
  uint32_t position;
};

template <class Size>
__device__ __forceinline__ ListedRow row_of_item(OrderedCall<Size> const& call,
                                                 RowSources const& sources, uint32_t item) {
  auto const f = feature_of_item(call, item);
  auto const position = item - in_memory(call.first_item)[f];
  auto const slot = in_memory(call.features + f)->slots[position];
  auto const* const homes = reinterpret_cast<char const*>(sources.tier.homes);
  return {homes + int64_t{slot} * sources.tier.record_bytes, f, position};
}

// The rows of a table. Warps take items by turns, so that all of them read neighbouring addresses.
template <class Size, class Format>
__device__ __forceinline__ void copy_listed(OrderedCall<Size> const& call,
                                            RowSources const& sources, uint32_t begin, uint32_t end,
                                            Format in) {
  constexpr int kInFlight = 4;
  auto const dim = sources.table.dim;
  auto const tile = RowTile::of_row(dim);
  auto const warp = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / 32;
  auto const warps = int64_t{gridDim.x} * kWarpsPerBlock;
  for (int64_t base = begin; base < end; base += 32 * warps) {
    auto const i = base + lane_id() * warps + warp;
    auto const item = i < end ? __ldcg(call.order.list + i) : 0;
    auto const own = i < end ? row_of_item(call, sources, item) : ListedRow{nullptr, 0, 0};
    auto const count = __popc(__ballot_sync(kFullWarp, i < end));  // the lanes from 0 on
    for (int from = 0; from < count; from += tile.per_warp * kInFlight) {
      for (auto c = tile.first_column(); __any_sync(kFullWarp, c < dim); c += tile.step()) {
        ListedRow row[kInFlight];
        RawQuad quad[kInFlight];
#pragma unroll
        for (int r = 0; r < kInFlight; ++r) {
          auto const lane = from + r * tile.per_warp + tile.index;
          auto const word = __shfl_sync(kFullWarp, reinterpret_cast<uint64_t>(own.from), lane & 31);
          row[r].from = reinterpret_cast<char const*>(lane < count && c < dim ? word : 0);
          row[r].feature = __shfl_sync(kFullWarp, own.feature, lane & 31);
          row[r].position = __shfl_sync(kFullWarp, own.position, lane & 31);
        }
#pragma unroll
        for (int r = 0; r < kInFlight; ++r) {
          if (row[r].from != nullptr) quad[r] = load_quad(in, row[r].from, c, dim);
        }
#pragma unroll
        for (int r = 0; r < kInFlight; ++r) {
          if (row[r].from == nullptr) continue;
          auto const& feature = *in_memory(call.features + row[r].feature);
          auto const store = [&](auto out) {
            auto const offset = row_offset(feature.places, row[r].position, dim);
            store_quad<true>(out, element_pointer(out, feature.rows, offset), c, dim,
                             to_floats(in, quad[r]));
          };
          if constexpr (std::is_same_v<Format, FloatVectors>) {
            store(FloatVectors{});
          } else {
            store(AnyFormat{feature.row_type, moves_vectors(feature.rows, dim)});
          }
        }
      }
    }
  }
}

template <bool kFloats, class Size>
__global__ void __launch_bounds__(kThreads)
    ordered_rows_kernel(__grid_constant__ OrderedCall<Size> const call) {
  auto const& order = call.order;
  if (*order.any == 0) return;
  sum_up_counts(order);
  list_items(call);
  for (int32_t t = 0; t < call.num_tables; ++t) {
    auto const& sources = call.sources[t];
    auto const begin = __ldcg(order.counts + call.first_bucket[t]);
    auto const end = __ldcg(order.counts + call.first_bucket[t + 1]);
    if constexpr (kFloats) {
      copy_listed(call, sources, begin, end, FloatVectors{});
    } else {
      copy_listed(call, sources, begin, end, value_format(sources.table));
    }
  }
}

// ---- host ---------------------------------------------------------------------------------------

inline int64_t ordered_blocks() { return bus_blocks(multiprocessors()); }

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
  order.counts = scratch.take<uint32_t>(order.buckets + 1 + 2);  // cleared together
  order.arrived = order.counts + order.buckets + 1;
  order.any = order.arrived + 1;
  order.sums = scratch.take<uint32_t>(ordered_blocks());
  order.ranks = scratch.take<uint32_t>(order.items);
  order.list = scratch.take<uint32_t>(order.items);
  return order;
}

}  // namespace dynemb::cuda
