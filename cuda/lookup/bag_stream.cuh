// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/bag_stream.cuh: a serving lookup of nothing but plain bags, of wide rows or jagged.
//
// A warp probes the ids of its bags and then sums their rows as one stream: the next rows are on
// their way while a bag ends. All other calls (see is_plain) use BagPooler. Its loop loads some
// rows, adds them and loads the next ones, because weights and initial rows take registers there.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/lookup/bag_pooler.cuh"
#include "cuda/lookup/find_ids.cuh"
#include "cuda/lookup/probe_rows.cuh"

namespace dynemb::cuda {

constexpr int kStreamBlock = 64;  // a block of one warp would allow no more of them at once

// kTiled: rows take less than a warp. Each tile has a stream then, of about as many ids as others.
// So a warp has more bags: with one for each tile, all would wait for the longest.
template <bool kTiled>
struct StreamShape {
  static constexpr int kRows = kTiled ? 6 : 8;  // in flight
  static constexpr int kSlots = kTiled ? 512 : kCachedSlots;
};

constexpr int kMostBags = kCachedSlots;  // of a warp: bags_per_warp gives no more

template <bool kTiled>
struct StreamCache {
  int32_t slots[StreamShape<kTiled>::kSlots];
  int32_t begins[kMostBags + 2];  // of bags among the ids of the warp, and the end of the last
  float factors[kMostBags];       // of bags (kMean only)
};

template <class In, class Out, bool kTiled>
struct BagStream {
  static constexpr int kQuads = kQuadsOfWord<In>;
  static constexpr int kStreamRows = StreamShape<kTiled>::kRows;
  static constexpr int kColumns = 4 * kQuads;  // of a lane

  In in;
  Out out;
  TableRef const& table;
  FeatureRef const& feature;
  StreamCache<kTiled>& cache;
  int32_t first_bag;
  int32_t bags;

  // Positions have 32 bits (is_countable). Whatever offsets are, none is outside of the ids.
  __device__ __forceinline__ int32_t begin_of(int32_t bag) const {
    if (feature.bag_size > 0) return bag * static_cast<int32_t>(feature.bag_size);
    return min(max(feature.offsets[bag], 0), static_cast<int32_t>(feature.num_ids));
  }

  __device__ __forceinline__ void load_begins(int32_t first, int32_t last) const {
    for (auto bag = lane_id(); bag <= bags; bag += 32) {
      cache.begins[bag] = min(max(begin_of(first_bag + bag), first), last) - first;
    }
  }

  __device__ __forceinline__ void probe(int32_t first, int32_t last, bool cached) const {
#pragma unroll 1
    for (auto base = first; base < last; base += 32) {
      Key keys[1];
      Found found[1];
      load_keys(feature, base, last, keys);
      find_slots<false, Elsewhere::kCalled>(table, keys, found);
      auto const position = base + lane_id();
      if (position >= last) continue;
      auto const slot = slot_to_read(found[0].slot);
      feature.slots[position] = slot;
      if (cached) cache.slots[position - first] = slot;
    }
    __syncwarp();
  }

  // Each bag has a lane.
  __device__ __forceinline__ void find_factors(int32_t const* slots) const {
    for (auto bag = lane_id(); bag < bags; bag += 32) {
      int32_t count = 0;
      for (auto i = cache.begins[bag]; i < cache.begins[bag + 1]; ++i) {
        count += slots[i] == kPaddingSlot ? 0 : 1;
      }
      auto const factor = count == 0 ? 0.0f : 1.0f / static_cast<float>(count);
      cache.factors[bag] = factor;
      if (feature.scale != nullptr) feature.scale[first_bag + bag] = factor;
    }
    __syncwarp();
  }

  // Zeros for an id without a row, and from `count` on.
  __device__ __forceinline__ RawQuad load(int32_t const* slots, int32_t index, int32_t count,
                                          char const* columns, uint32_t row_bytes) const {
    auto const slot = index < count ? slots[index] : kPaddingSlot;
    auto const* const row = nth_row(columns, static_cast<uint32_t>(slot), row_bytes);
    return load_word_if(slot >= 0, in, row, kColumns);
  }

  template <bool kMean>
  __device__ __forceinline__ void finish(int32_t bag, char* rows, uint32_t row_bytes,
                                         float4 (&sum)[kQuads]) const {
    if constexpr (kMean) {
      auto const factor = cache.factors[bag];
#pragma unroll
      for (auto& quad : sum) quad = scaled(factor, quad);
    }
    store_quads<true>(out, nth_row(rows, static_cast<uint32_t>(bag), row_bytes), 0, kColumns, sum);
#pragma unroll
    for (auto& quad : sum) quad = {};
  }

  // The columns of a lane from `column` on, in the bags from `bag` to `last_bag`.
  template <bool kMean>
  __device__ __forceinline__ void sum_columns(int32_t const* slots, int32_t column, int32_t bag,
                                              int32_t last_bag) const {
    auto const dim = table.dim;
    auto const from_bytes = stored_row_bytes(in, dim);
    auto const to_bytes = static_cast<uint32_t>(dim * element_bytes(out));
    auto const* const from = stored_column(in, table.values, column);
    auto* const to = nth_row(element_pointer(out, feature.rows, column),
                             static_cast<uint32_t>(first_bag), to_bytes);
    auto const count = cache.begins[last_bag];
    auto index = cache.begins[bag], end = cache.begins[bag + 1];
    RawQuad word[kStreamRows];
#pragma unroll
    for (int r = 0; r < kStreamRows; ++r) {
      word[r] = load(slots, index + r, count, from, from_bytes);
    }
    float4 sum[kQuads] = {};
#pragma unroll 1
    while (bag < last_bag) {
#pragma unroll
      for (int r = 0; r < kStreamRows; ++r) {
        while (index >= end && bag < last_bag) {  // also if offsets fall
          finish<kMean>(bag, to, to_bytes, sum);
          end = cache.begins[++bag + 1];
        }
#pragma unroll
        for (int q = 0; q < kQuads; ++q) add_scaled(sum[q], 1.0f, to_floats(in, word[r], q));
        word[r] = load(slots, index + kStreamRows, count, from, from_bytes);
        ++index;
      }
    }
  }

  // The first bag of a tile: the first one that begins in its share of the ids.
  __device__ __forceinline__ int32_t first_bag_of(int32_t tile, int32_t tiles) const {
    auto const share = int64_t{cache.begins[bags]} * tile;
    int32_t low = 0, high = bags;
    while (low < high) {
      auto const middle = (low + high) / 2;
      if (int64_t{cache.begins[middle]} * tiles < share) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  template <bool kMean>
  __device__ __forceinline__ void sum_of_tile(int32_t const* slots) const {
    auto column = lane_id() * kColumns, from = 0, to = bags;
    if constexpr (kTiled) {
      auto const tile = RowTile::of_row(table.dim / kQuads);
      column = tile.rank * kColumns;
      from = first_bag_of(tile.index, tile.per_warp);
      if (tile.index + 1 < tile.per_warp) to = first_bag_of(tile.index + 1, tile.per_warp);
      if (from >= to) return;
    }
    for (; column < table.dim; column += 32 * kColumns) {
      sum_columns<kMean>(slots, column, from, to);
    }
  }

  __device__ __forceinline__ void sum(int32_t const* slots) const {
    if (feature.pooling == Pooling::kMean) {
      find_factors(slots);
      sum_of_tile<true>(slots);
    } else {
      sum_of_tile<false>(slots);
    }
  }

  __device__ __forceinline__ void run() const {
    auto const first = begin_of(first_bag);
    auto const last = max(first, begin_of(first_bag + bags));
    auto const cached = last - first <= StreamShape<kTiled>::kSlots;
    load_begins(first, last);
    probe(first, last, cached);
    if (cached) {
      sum(cache.slots);
    } else {
      sum_apart(*this, feature.slots + first);
    }
  }

  // Out of line, since few warps have so many ids; by value, since for an address all warps would
  // write the stream to memory.
  static __device__ __noinline__ void sum_apart(BagStream const stream, int32_t const* slots) {
    stream.sum(slots);
  }

  // Positions after the last bag, shared out among the warps, are padding.
  __device__ __forceinline__ void skip_after_bags(int64_t warp, int64_t num_warps) const {
    auto const first = end_of_bags(feature) + warp * 32 + lane_id();
    for (auto position = first; position < feature.num_ids; position += num_warps * 32) {
      feature.slots[position] = kPaddingSlot;
    }
  }
};

template <class Formats, bool kTiled, class Size>
__global__ void __launch_bounds__(kStreamBlock, 32 * 32 / kStreamBlock)
    bag_stream_kernel(__grid_constant__ CallArgs<Size> const call) {
  constexpr int kWarps = kStreamBlock / 32;
  __shared__ StreamCache<kTiled> caches[kWarps];
  auto const f = feature_of_block(call, blockIdx.x);
  auto const& feature = call.features[f];
  auto const warp_in_block = static_cast<int32_t>(threadIdx.x / 32);
  auto const blocks = static_cast<int32_t>(call.first_block[f + 1] - call.first_block[f]);
  auto const block = static_cast<int32_t>(blockIdx.x - call.first_block[f]);
  auto const warp = block * kWarps + warp_in_block;
  auto const first_bag = warp * call.items_per_warp[f];
  auto const bags = min(call.items_per_warp[f], static_cast<int32_t>(feature.num_bags) - first_bag);
  auto const stream = BagStream<typename Formats::Stored, typename Formats::Row, kTiled>{
      {}, {}, call.tables[feature.table], feature, caches[warp_in_block], first_bag, bags};
  if (bags > 0) stream.run();
  if (feature.bag_size == 0) stream.skip_after_bags(warp, int64_t{blocks} * kWarps);
}

// ---- host ---------------------------------------------------------------------------------------

inline bool is_zero(Initializer const& initializer) {
  return initializer.kind == InitializerKind::kConstant && initializer.parameter[0] == 0.0f;
}

// Below so many lanes a row, a warp would need more bags than it has room for.
constexpr int kFewestLanesOfTile = 8;

// Whether BagStream can run a call: all features are bags without weights, their rows have these
// formats and follow each other, and ids without a row add zeros. A row takes all lanes of a warp.
// With kTiled rows may also take fewer lanes, and all bags are jagged.
template <class Formats, bool kTiled>
bool is_plain_of(FindArgs const& args) {
  constexpr auto kQuads = kQuadsOfWord<typename Formats::Stored>;
  auto const is_plain_bag = [&](FeatureRef const& feature) {
    auto const& table = args.tables[feature.table];
    auto const lanes = lanes_of_row(table.dim / kQuads);
    return pools(feature) && feature.weights == nullptr && feature.places.group == 0 &&
           is_zero(table.eval_initializer) &&
           (kTiled ? feature.bag_size == 0 && lanes >= kFewestLanesOfTile : lanes == 32);
  };
  return std::all_of(args.features, args.features + args.num_features, is_plain_bag) &&
         has_formats<Formats>(args);
}

template <class Formats>
bool is_plain(FindArgs const& args) {
  return is_plain_of<Formats, false>(args) || is_plain_of<Formats, true>(args);
}

// Returns how many bags a warp gets with kTiled: two for each tile, if their ids fit.
inline int32_t tiled_bags_per_warp(FeatureRef const& feature, TableRef const& table,
                                   int32_t quads) {
  auto const tiles = 32 / lanes_of_row(table.dim / quads);
  auto const ids_of_bag =
      std::max<int64_t>(1, feature.num_ids / std::max<int64_t>(1, feature.num_bags));
  auto const fitting = StreamShape<true>::kSlots * 3 / 4 / ids_of_bag;
  auto const wanted = std::min<int64_t>(2 * tiles, fitting);
  return static_cast<int32_t>(std::clamp<int64_t>(wanted, tiles, kMostBags));
}

template <class Formats, bool kTiled, class Size>
cudaError_t launch_bag_stream(FindArgs const& args, cudaStream_t stream) {
  auto const cut = [&](FeatureRef const& feature) -> Cut {
    constexpr auto kQuads = kQuadsOfWord<typename Formats::Stored>;
    auto const& table = args.tables[feature.table];
    // At least one warp where there are ids after the last bag.
    auto const least = feature.num_ids > 0 ? int64_t{1} : int64_t{0};
    return {std::max(feature.num_bags, least),
            kTiled ? tiled_bags_per_warp(feature, table, kQuads)
                   : bags_per_warp<FindIds>(feature, table, kQuads, total_ids(args))};
  };
  CallArgs<Size> call;
  auto const blocks = fill_call<Size>(args, cut, &call, kStreamBlock / 32);
  if (blocks == 0) return cudaSuccess;
  return launch(bag_stream_kernel<Formats, kTiled, Size>, blocks, stream, call, 0, kStreamBlock);
}

// Only for a call that is_plain.
template <class Formats, class Size>
cudaError_t stream_bags(FindArgs const& args, cudaStream_t stream) {
  auto const wide = is_plain_of<Formats, false>(args);
  if (wide) return launch_bag_stream<Formats, false, Size>(args, stream);
  return launch_bag_stream<Formats, true, Size>(args, stream);
}

}  // namespace dynemb::cuda
