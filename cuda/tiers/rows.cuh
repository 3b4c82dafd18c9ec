// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/rows.cuh: the rows of a lookup, given its slots: one for each id, by a warp for 32 of
// them, or one for each bag, by a tile of lanes. Sums have the order of cuda/lookup/bag_pooler.cuh:
// first the rows that there were before the lookup, then initial ones.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/grid/call.cuh"
#include "cuda/lookup/bag_pooler.cuh"
#include "cuda/tiers/row_source.cuh"

namespace dynemb::cuda {

constexpr int kTierRowsInFlight = 4;  // of a tile
constexpr int kBagsOfTile = 2;

template <class Size>
struct TierRowsCall {
  RowSources sources[kMaxTierTables];
  uint32_t* done;
  int32_t num_features;
  uint32_t blocks_of_each;  // feature, if all have as many; else 0
  FeatureRef features[Size::features];
  uint32_t first_block[Size::features + 1];
};

template <class In, class Out>
struct TierRows {
  static constexpr int kInFlight = kTierRowsInFlight;

  RowSources const& sources;
  FeatureRef const& feature;
  In in;
  Out out;

  __device__ __forceinline__ void store(int64_t row, int32_t column, float4 const& values) const {
    auto const dim = sources.table.dim;
    auto* const to = element_pointer(out, feature.rows, row_offset(feature.places, row, dim));
    store_quad<true>(out, to, column, dim, values);
  }

  __device__ __forceinline__ RawQuad load(RowSource const& source, int32_t column) const {
    return load_quad_if(source.is_row(), in, source.row(), column, sources.table.dim);
  }

  __device__ __forceinline__ float4 initial(RowSource const& source, int64_t position,
                                            int32_t column) const {
    auto const key = load_key(feature.ids, feature.id_type, position);
    return draw_initial(sources, in, source, key, column);
  }

  // ---- a row for each id ------------------------------------------------------------------------

  // A warp copies the rows of `count` <= 32 ids from `first` on.
  __device__ __forceinline__ void copy(int64_t first, int32_t count) const {
    auto const active = lane_id() < count;
    auto const own = active ? source_of(sources, feature.slots[first + lane_id()]) : RowSource{0};
    auto const tile = RowTile::of_row(sources.table.dim);
    for (auto c = tile.first_column(); __any_sync(kFullWarp, c < sources.table.dim);
         c += tile.step()) {
      for (int32_t base = 0; base < count; base += tile.per_warp * kInFlight) {
        copy_some(tile, first, count, base, c, own);
      }
    }
    auto const missing = __ballot_sync(kFullWarp, active && own.is_initial());
    if (missing != 0) write_initial(tile, first, missing, own);
  }

  __device__ __forceinline__ void copy_some(RowTile const& tile, int64_t first, int32_t count,
                                            int32_t base, int32_t column,
                                            RowSource const& own) const {
    RowSource source[kInFlight];
    RawQuad quad[kInFlight];
#pragma unroll
    for (int r = 0; r < kInFlight; ++r) {
      auto const index = base + r * tile.per_warp + tile.index;
      source[r] = {__shfl_sync(kFullWarp, own.word, index & 31)};
      // Lanes without a row or a column write nothing.
      if (index >= count || column >= sources.table.dim) source[r] = {RowSource::kMissing};
    }
#pragma unroll
    for (int r = 0; r < kInFlight; ++r) {
      quad[r] = RawQuad{{0, 0, 0, 0}};
      if (source[r].is_row()) quad[r] = load_quad(in, source[r].row(), column, sources.table.dim);
    }
#pragma unroll
    for (int r = 0; r < kInFlight; ++r) {
      if (source[r].is_initial()) continue;
      auto const index = base + r * tile.per_warp + tile.index;
      store(first + index, column, to_floats(in, quad[r]));
    }
  }

  __device__ __forceinline__ void write_initial(RowTile const& tile, int64_t first,
                                                unsigned missing, RowSource const& own) const {
    for (int32_t base = 0; base < 32; base += tile.per_warp) {
      auto const index = base + tile.index;
      auto const source = RowSource{__shfl_sync(kFullWarp, own.word, index & 31)};
      if ((missing >> index & 1) == 0) continue;
      for (auto c = tile.first_column(); c < sources.table.dim; c += tile.step()) {
        store(first + index, c, initial(source, first + index, c));
      }
    }
  }

  // ---- a row for each bag -----------------------------------------------------------------------

  // What the sum of a bag is multiplied by.
  __device__ __forceinline__ float factor_of(RowTile const& tile, int64_t bag,
                                             BagRange const& ids) const {
    if (feature.pooling != Pooling::kMean) return 1.0f;
    int32_t count = 0;
    for (auto i = ids.begin + tile.rank; i < ids.end; i += tile.lanes) {
      count += feature.slots[i] == kPaddingSlot ? 0 : 1;
    }
    for (int distance = tile.lanes / 2; distance > 0; distance /= 2) {
      count += __shfl_xor_sync(tile.mask(), count, distance);
    }
    auto const factor = count == 0 ? 0.0f : 1.0f / static_cast<float>(count);
    if (feature.scale != nullptr && tile.rank == 0) feature.scale[bag] = factor;
    return factor;
  }

  // The lanes of a tile call this.
  __device__ __forceinline__ void pool(RowTile const& tile, int64_t bag) const {
    auto const ids = within(bag_range(feature, bag), {0, feature.num_ids});
    auto const factor = factor_of(tile, bag, ids);
    auto const dim = sources.table.dim;
    for (int32_t base = 0; base < dim; base += tile.step()) {
      auto const column = base + tile.first_column();
      float4 sum{0, 0, 0, 0};
      auto any_last = false;
      for (auto first = ids.begin; first < ids.end; first += tile.lanes) {
        any_last |= add_rows(tile, first, ids.end, column, sum);
      }
      if (column >= dim) continue;
      if (any_last) add_last(ids, column, sum);
      store(bag, column, scaled(factor, sum));
    }
  }

  // As many ids as the tile has lanes: each finds where one lies, and then all add it up. Returns
  // whether there are rows that come last: such are not added.
  __device__ __forceinline__ bool add_rows(RowTile const& tile, int64_t first, int64_t end,
                                           int32_t column, float4& sum) const {
    auto const i = first + tile.rank;
    auto const own = i < end ? source_of(sources, feature.slots[i]) : RowSource{0};
    auto const count = static_cast<int32_t>(min(end - first, int64_t{tile.lanes}));
    auto any_last = false;
    for (int32_t base = 0; base < count; base += kInFlight) {
      RowSource source[kInFlight];
      RawQuad quad[kInFlight];
#pragma unroll
      for (int r = 0; r < kInFlight; ++r) {
        auto const from = tile.index * tile.lanes + (base + r) % tile.lanes;
        source[r] = {__shfl_sync(tile.mask(), own.word, from)};
        if (base + r >= count) source[r] = {RowSource::kPadding};
        any_last |= source[r].is_last(sources.serves);
        if (column >= sources.table.dim) source[r] = {RowSource::kPadding};
      }
#pragma unroll
      for (int r = 0; r < kInFlight; ++r) {
        if (source[r].is_row()) {
          quad[r] = load_quad(in, source[r].row(), column, sources.table.dim);
        }
      }
#pragma unroll
      for (int r = 0; r < kInFlight; ++r) {
        auto const position = first + base + r;
        if (source[r].is_row()) {
          add_scaled(sum, weight_of(feature, position), to_floats(in, quad[r]));
        } else if (source[r].is_initial() && !source[r].is_last(sources.serves)) {
          add_scaled(sum, weight_of(feature, position), initial(source[r], position, column));
        }
      }
    }
    return any_last;
  }

  __device__ __forceinline__ void add_last(BagRange const& ids, int32_t column, float4& sum) const {
    for (auto i = ids.begin; i < ids.end; ++i) {
      auto const source = source_of(sources, feature.slots[i]);
      if (!source.is_last(sources.serves)) continue;
      add_scaled(sum, weight_of(feature, i), initial(source, i, column));
    }
  }
};

__device__ __forceinline__ AnyFormat stored_format(RowSources const& sources) {
  return value_format(sources.table);  // records begin at multiples of 16 bytes
}

template <bool kFloats, class Size>
__global__ void __launch_bounds__(kThreads)
    tier_rows_kernel(__grid_constant__ TierRowsCall<Size> const call) {
  if (blockIdx.x == 0 && threadIdx.x == 0 && call.done != nullptr) *call.done = 0;
  if (call.num_features == 0 || blockIdx.x >= call.first_block[call.num_features]) return;
  auto const f = feature_of_block(call, blockIdx.x);
  auto const& feature = call.features[f];
  auto const& sources = call.sources[feature.table];
  auto const dim = sources.table.dim;
  auto const block = int64_t{blockIdx.x - call.first_block[f]};
  auto const warp = block * kWarpsPerBlock + threadIdx.x / 32;
  auto const run = [&](auto in, auto out) {
    auto const rows = TierRows<decltype(in), decltype(out)>{sources, feature, in, out};
    if (!pools(feature)) {
      auto const first = warp * 32;
      auto const count = min(feature.num_ids - first, int64_t{32});
      if (count > 0) rows.copy(first, static_cast<int32_t>(count));
      return;
    }
    auto const tile = RowTile::of_row(dim);
    auto const first = (warp * tile.per_warp + tile.index) * kBagsOfTile;
    for (auto bag = first; bag < min(first + kBagsOfTile, feature.num_bags); ++bag) {
      rows.pool(tile, bag);
    }
  };
  if constexpr (kFloats) {
    run(FloatVectors{}, FloatVectors{});
  } else {
    run(stored_format(sources), AnyFormat{feature.row_type, moves_vectors(feature.rows, dim)});
  }
}

// ---- host ---------------------------------------------------------------------------------------

// Returns the blocks that a feature needs.
inline int64_t tier_rows_blocks(FeatureRef const& feature, int32_t dim) {
  if (feature.pooling == Pooling::kNoRows) return 0;
  auto const of_warp = pools(feature) ? kBagsOfTile * (32 / lanes_of_row(dim)) : 32;
  auto const items = pools(feature) ? feature.num_bags : feature.num_ids;
  return ceil_div(items, int64_t{of_warp} * kWarpsPerBlock);
}

inline int32_t dim_of(TierRowsArgs const& args, FeatureRef const& feature) {
  return args.tables[feature.table].table.dim;
}

inline bool are_floats(TierRowsArgs const& args) {
  auto const is_one = [&](FeatureRef const& feature) {
    auto const& table = args.tables[feature.table].table;
    return feature.pooling == Pooling::kNoRows ||
           (is_format<FloatVectors>(table.value_type, table.values, table.dim) &&
            is_format<FloatVectors>(feature.row_type, feature.rows, table.dim));
  };
  return std::all_of(args.features, args.features + args.num_features, is_one);
}

// Notes which blocks work on which feature, `blocks_of(feature)` of them. Returns their number.
template <class Size, class BlocksOf>
int64_t fill_call(TierRowsArgs const& args, BlocksOf const& blocks_of, TierRowsCall<Size>* call) {
  for (int32_t t = 0; t < args.num_tables; ++t) {
    call->sources[t] = {args.tables[t], args.serves != 0};
  }
  call->done = args.done;
  call->num_features = args.num_features;
  call->blocks_of_each = 0;
  uint32_t blocks = 0;
  for (int32_t f = 0; f < args.num_features; ++f) {
    call->features[f] = args.features[f];
    call->first_block[f] = blocks;
    blocks += static_cast<uint32_t>(blocks_of(args.features[f]));
  }
  call->first_block[args.num_features] = blocks;
  return blocks;
}

}  // namespace dynemb::cuda
