// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup_rows.cuh: from ids to rows in one kernel: a warp probes its ids, one lane an id, and
// copies or pools their rows, all lanes together.
//
// An id that is not in the table reads its initial row, also in training, where a later kernel may
// store it: what it will hold is known without waiting (core/initializer.h). So a lookup writes its
// rows here, whatever becomes of the missing ids. A template over Ids: what a probe does beyond
// finding the slot (see cuda/find.cu and cuda/lookup.cu):
//   probe(here, position, active)   reached by all lanes; writes the slot
//   touch(here, probed)             after the rows were copied
//   missing(table)                  the initializer of ids without a row
#pragma once

#include <cstdint>

#include "core/slot.h"
#include "cuda/call.cuh"
#include "cuda/initial_rows.cuh"
#include "cuda/probe.cuh"
#include "cuda/row_format.cuh"
#include "cuda/tile_group.cuh"

namespace dynemb::cuda {

constexpr int kRowsInFlight = 4;   // of a tile
constexpr int kCachedSlots = 128;  // of the bags of a warp; the others are read back

// What a block works on.
struct Here {
  TableRef const& table;
  FeatureRef const& feature;
  int32_t feature_index;
};

struct Probed {
  Key key;
  int32_t slot;  // kPaddingSlot, or below it where there is no row
};

// A sum over bags of one id each, without weights, is the row itself.
__host__ __device__ __forceinline__ bool pools(FeatureRef const& feature) {
  if (feature.pooling == Pooling::kMean) return true;
  return feature.pooling == Pooling::kSum && (feature.bag_size != 1 || feature.weights != nullptr);
}

template <class In, class Out, class Ids>
struct RowCopier {
  In in;
  Out out;
  Here here;
  Ids const& ids;

  __device__ __forceinline__ RawQuad load(int32_t slot, int32_t column) const {
    auto const& table = here.table;
    return load_quad(in, row_pointer(in, const_cast<void const*>(table.values), slot, table.dim),
                     column, table.dim);
  }

  __device__ __forceinline__ void store(int64_t row, int32_t column, float4 const& values) const {
    auto const dim = here.table.dim;
    store_quad<true>(out, row_pointer(out, here.feature.rows, row, dim), column, dim, values);
  }

  __device__ __forceinline__ float4 initial(Key key, int32_t column) const {
    auto const& table = here.table;
    return initial_quad(table, ids.missing(table), table.counters[kSeed], key, column);
  }

  // One row for each of the `count` <= 32 ids from `first` on.
  __device__ __forceinline__ void copy(int64_t first, int32_t count) const {
    auto const active = lane_id() < count;
    auto const id = ids.probe(here, first + lane_id(), active);
    auto const tile = RowTile(lanes_of_row(here.table.dim));
    for (int32_t base = 0; base < count; base += tile.per_warp * kRowsInFlight) {
      copy_some(tile, first, count, base, id.slot);
    }
    auto const missing = __ballot_sync(kFullWarp, active && id.slot < kPaddingSlot);
    if (missing != 0) write_initial(tile, first, missing, id.key);
    ids.touch(here, id);
  }

  __device__ __forceinline__ void copy_some(RowTile const& tile, int64_t first, int32_t count,
                                            int32_t base, int32_t own_slot) const {
    auto const dim = here.table.dim;
    int32_t slot[kRowsInFlight];
#pragma unroll
    for (int r = 0; r < kRowsInFlight; ++r) {
      auto const index = base + r * tile.per_warp + tile.index;
      slot[r] = __shfl_sync(kFullWarp, own_slot, index & 31);
      if (index >= count) slot[r] = kMissingSlot;
    }
    for (auto c = tile.first_column(); c < dim; c += tile.step()) {
      RawQuad quad[kRowsInFlight];
#pragma unroll
      for (int r = 0; r < kRowsInFlight; ++r) {
        quad[r] = slot[r] >= 0 ? load(slot[r], c) : RawQuad{{0, 0, 0, 0}};
      }
#pragma unroll
      for (int r = 0; r < kRowsInFlight; ++r) {
        auto const index = base + r * tile.per_warp + tile.index;
        if (slot[r] >= kPaddingSlot) store(first + index, c, to_floats(in, quad[r]));
      }
    }
  }

  __device__ __forceinline__ void write_initial(RowTile const& tile, int64_t first,
                                                unsigned missing, Key own_key) const {
    for (int32_t base = 0; base < 32; base += tile.per_warp) {
      auto const index = base + tile.index;
      auto const key = __shfl_sync(kFullWarp, own_key, index);
      if ((missing >> index & 1) == 0) continue;
      for (auto c = tile.first_column(); c < here.table.dim; c += tile.step()) {
        store(first + index, c, initial(key, c));
      }
    }
  }
};

// Bags: a warp probes the ids of its bags first, then a tile of its lanes sums a bag.
template <class In, class Out, class Ids>
struct BagPooler {
  RowCopier<In, Out, Ids> rows;
  int32_t* cache;  // [kCachedSlots] of this warp
  int64_t begin;   // position of the first id

  // Ids of a warp's bags are counted from `begin`.
  __device__ __forceinline__ int32_t slot_of(int32_t index) const {
    return index < kCachedSlots ? cache[index] : rows.here.feature.slots[begin + index];
  }

  __device__ __forceinline__ void probe(int64_t end) const {
#pragma unroll 1
    for (auto base = begin; base < end; base += 32) {
      auto const position = base + lane_id();
      auto const id = rows.ids.probe(rows.here, position, position < end);
      if (position - begin < kCachedSlots) cache[position - begin] = id.slot;
      rows.ids.touch(rows.here, id);
    }
    __syncwarp();
  }

  struct Sum {
    float4 value;
    int32_t count;  // ids, padding left out
    bool missing;   // some have no row; they are not added yet
  };

  __device__ __forceinline__ void add_some(int32_t first, int32_t end, int32_t column,
                                           Sum& sum) const {
    RawQuad quad[kRowsInFlight];
    int32_t slot[kRowsInFlight];
    float weight[kRowsInFlight];
#pragma unroll
    for (int r = 0; r < kRowsInFlight; ++r) {
      auto const inside = first + r < end;
      slot[r] = inside ? slot_of(first + r) : kPaddingSlot;
      weight[r] = inside ? weight_of(rows.here.feature, begin + (first + r)) : 0.0f;
    }
#pragma unroll
    for (int r = 0; r < kRowsInFlight; ++r) {
      quad[r] = slot[r] >= 0 ? rows.load(slot[r], column) : RawQuad{{0, 0, 0, 0}};
    }
#pragma unroll
    for (int r = 0; r < kRowsInFlight; ++r) {
      if (slot[r] >= 0) add_scaled(sum.value, weight[r], to_floats(rows.in, quad[r]));
      sum.count += slot[r] != kPaddingSlot ? 1 : 0;
      sum.missing |= slot[r] < kPaddingSlot;
    }
  }

  __device__ __forceinline__ void add_missing(int32_t first, int32_t end, int32_t column,
                                              Sum& sum) const {
    auto const& feature = rows.here.feature;
    for (auto index = first; index < end; ++index) {
      if (slot_of(index) >= kPaddingSlot) continue;
      auto const key = load_key(feature.ids, feature.id_type, begin + index);
      add_scaled(sum.value, weight_of(feature, begin + index), rows.initial(key, column));
    }
  }

  __device__ __forceinline__ void pool(RowTile const& tile, int64_t bag) const {
    auto const& feature = rows.here.feature;
    auto const range = bag_range(feature, bag);
    auto const first = static_cast<int32_t>(range.begin - begin);
    auto const end = static_cast<int32_t>(range.end - begin);
    for (auto c = tile.first_column(); c < rows.here.table.dim; c += tile.step()) {
      Sum sum{{0.0f, 0.0f, 0.0f, 0.0f}, 0, false};
#pragma unroll 1
      for (auto some = first; some < end; some += kRowsInFlight) add_some(some, end, c, sum);
      if (sum.missing) add_missing(first, end, c, sum);
      auto factor = 1.0f;
      if (feature.pooling == Pooling::kMean) {
        factor = sum.count == 0 ? 0.0f : 1.0f / static_cast<float>(sum.count);
        if (c == 0 && feature.scale != nullptr) feature.scale[bag] = factor;
      }
      rows.store(bag, c, scaled(factor, sum.value));
    }
  }

  // `end`: after the last id of the bags.
  __device__ __forceinline__ void run(int64_t first_bag, int64_t last_bag, int64_t end) const {
    probe(end);
    auto const tile = RowTile(lanes_of_row(rows.here.table.dim));
    for (auto bag = first_bag + tile.index; bag < last_bag; bag += tile.per_warp) pool(tile, bag);
  }
};

// The items of one warp: ids `first` on, or bags where the feature pools.
struct WarpShare {
  int64_t warp;  // of the feature
  int64_t num_warps;
  int64_t first, last;
};

template <class Ids>
__device__ __forceinline__ void probe_only(Here const& here, Ids const& ids, int64_t first,
                                           int64_t last) {
  auto const id = ids.probe(here, first + lane_id(), first + lane_id() < last);
  ids.touch(here, id);
}

template <class In, class Out, class Ids>
__device__ __forceinline__ void pool_of_warp(RowCopier<In, Out, Ids> const& rows,
                                             WarpShare const& share, int32_t* cache) {
  auto const& feature = rows.here.feature;
  if (share.first < share.last) {
    auto const begin = bag_range(feature, share.first).begin;
    auto const end = bag_range(feature, share.last - 1).end;
    BagPooler<In, Out, Ids>{rows, cache, begin}.run(share.first, share.last, end);
  }
  if (feature.bag_size > 0) return;
  // Positions after the last bag, shared out among the warps: they get a slot, and no row.
  for (auto base = feature.offsets[feature.num_bags] + share.warp * 32; base < feature.num_ids;
       base += share.num_warps * 32) {
    probe_only(rows.here, rows.ids, base, feature.num_ids);
  }
}

template <bool kPools, class In, class Out, class Ids>
__device__ __forceinline__ void rows_of_warp(In in, Out out, Here const& here, Ids const& ids,
                                             WarpShare const& share, int32_t* cache) {
  auto const rows = RowCopier<In, Out, Ids>{in, out, here, ids};
  auto const& feature = here.feature;
  if (!kPools || !pools(feature)) {
    rows.copy(share.first, static_cast<int32_t>(max(share.last - share.first, int64_t{0})));
    return;
  }
  if constexpr (kPools) pool_of_warp(rows, share, cache);
}
template <class Size, class Ids>
struct RowsCall {
  CallArgs<Size> call;
  Ids ids;
};

// kFast: all tables and rows of the call are FloatVectors. kPools: some feature pools.
template <bool kFast, bool kPools, class Size, class Ids>
__global__ void __launch_bounds__(kThreads, 4)
    rows_kernel(__grid_constant__ RowsCall<Size, Ids> const p) {
  __shared__ int32_t cache[kWarpsPerBlock][kPools ? kCachedSlots : 1];
  auto const& call = p.call;
  auto const f = feature_of_block(call.first_block, call.num_features, blockIdx.x);
  auto const& feature = call.features[f];
  auto const& table = call.tables[feature.table];
  auto const here = Here{table, feature, f};
  auto const warp_in_block = static_cast<int32_t>(threadIdx.x / 32);

  auto const items = pools(feature) ? feature.num_bags : feature.num_ids;
  WarpShare share;
  share.warp = int64_t{blockIdx.x - call.first_block[f]} * kWarpsPerBlock + warp_in_block;
  share.num_warps = int64_t{call.first_block[f + 1] - call.first_block[f]} * kWarpsPerBlock;
  share.first = share.warp * call.items_per_warp[f];
  share.last = min(share.first + call.items_per_warp[f], items);

  if (feature.pooling == Pooling::kNoRows) {
    if (share.first < share.last) probe_only(here, p.ids, share.first, share.last);
  } else if constexpr (kFast) {
    rows_of_warp<kPools>(FloatVectors{}, FloatVectors{}, here, p.ids, share, cache[warp_in_block]);
  } else {
    auto const out = AnyFormat{feature.row_type, moves_vectors(feature.rows, table.dim)};
    rows_of_warp<kPools>(value_format(table), out, here, p.ids, share, cache[warp_in_block]);
  }
}

// ---- host ---------------------------------------------------------------------------------------

// Ids of a warp: fewer where there would not be enough warps to hide the memory's latency.
inline int32_t ids_per_warp(int64_t num_ids) {
  constexpr int64_t kEnoughWarps = 4096;
  int32_t ids = 32;
  while (ids > 8 && num_ids / ids < kEnoughWarps) ids /= 2;
  return ids;
}

// Bags of a warp: enough ids for its lanes to probe, and a bag for each of its tiles.
inline int32_t bags_per_warp(FeatureRef const& feature, int32_t dim) {
  auto const tiles = 32 / lanes_of_row(dim);
  auto const ids_of_bag = std::max<int64_t>(
      1, feature.bag_size > 0 ? feature.bag_size
                              : feature.num_ids / std::max<int64_t>(1, feature.num_bags));
  auto const rounds = std::max<int64_t>(1, 32 / (ids_of_bag * tiles));
  return static_cast<int32_t>(rounds * tiles);
}

inline bool is_fast(LookupArgs const& args) {
  for (int32_t f = 0; f < args.num_features; ++f) {
    auto const& feature = args.features[f];
    auto const& table = args.tables[feature.table];
    if (feature.pooling == Pooling::kNoRows) continue;
    if (!is_float_vectors(table.value_type, table.values, table.dim) ||
        !is_float_vectors(feature.row_type, feature.rows, table.dim)) {
      return false;
    }
  }
  return true;
}

inline bool pools_any(LookupArgs const& args) {
  return std::any_of(args.features, args.features + args.num_features, pools);
}

template <class Size, class Ids>
cudaError_t launch_rows(LookupArgs const& args, Ids const& ids, cudaStream_t stream) {
  RowsCall<Size, Ids> p;
  auto const per_warp = ids_per_warp(total_ids(args));
  auto const cut = [&](FeatureRef const& feature) -> Cut {
    if (!pools(feature)) return {feature.num_ids, per_warp};
    // At least one warp where there are ids after the last bag.
    auto const least = feature.num_ids > 0 ? int64_t{1} : int64_t{0};
    return {std::max(feature.num_bags, least),
            bags_per_warp(feature, args.tables[feature.table].dim)};
  };
  auto const blocks = fill_call<Size>(args, cut, &p.call);
  p.ids = ids;
  if (blocks == 0) return cudaSuccess;
  auto const grid = static_cast<unsigned>(blocks);
  auto const fast = is_fast(args), any_pools = pools_any(args);
  if (fast && any_pools) rows_kernel<true, true><<<grid, kThreads, 0, stream>>>(p);
  if (fast && !any_pools) rows_kernel<true, false><<<grid, kThreads, 0, stream>>>(p);
  if (!fast && any_pools) rows_kernel<false, true><<<grid, kThreads, 0, stream>>>(p);
  if (!fast && !any_pools) rows_kernel<false, false><<<grid, kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace dynemb::cuda
