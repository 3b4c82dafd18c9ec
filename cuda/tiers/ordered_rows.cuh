// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/ordered_rows.cuh: the rows of a find, one for each id, read in order of home address.
//
// Host memory answers three times as fast where all reads are near each other: the translation of
// addresses limits it. So there are as many blocks as multiprocessors. Each sorts a chunk of the
// ids of a feature by slot, in shared memory, and copies its rows in that order. All chunks of a
// feature have about as many ids, so all blocks read the same part of one table at a time.
#pragma once

#include <cstdint>

#include "cuda/tiers/rows.cuh"

namespace dynemb::cuda {

constexpr int kOrderThreads = 1024;
constexpr int kOrderWarps = kOrderThreads / 32;
constexpr int kBusWarps = 8;     // that copy rows in order: with more in flight, blocks drift apart
constexpr int kChunkIds = 2048;  // most of a chunk
constexpr int kIdsOfThread = kChunkIds / kOrderThreads;
constexpr int kLeastChunkIds = 256;       // where a feature has several chunks
constexpr int kSlotBins = kOrderThreads;  // a thread each
constexpr int kFewAtHome = 8;  // where fewer than one id of so many has its row at home, no sort

// The rows of a chunk, in the order in which they are copied.
struct OrderedChunk {
  uint64_t source[kChunkIds];  // RowSource::word
  uint16_t id[kChunkIds];      // in the chunk
  uint32_t bins[kSlotBins];    // how many ids; then those of the bins before, too
  uint32_t of_warps[kOrderWarps];
  uint32_t at_home, initial;  // ids
  bool sorted;
};

// Where the row of an id is read, and its place in the order.
struct OrderedId {
  RowSource source;
  uint32_t bin;
  uint32_t number;  // in the bin
};

class ChunkSorter {
 public:
  __device__ __forceinline__ ChunkSorter(RowSources const& sources, int32_t const* slots,
                                         int32_t count, OrderedChunk& chunk)
      : sources_(sources), slots_(slots), count_(count), chunk_(chunk) {
    auto const limit = static_cast<uint32_t>(sources.table.local_buckets * kBucketCapacity);
    shift_ = max(0, 32 - __clz(limit / kSlotBins));
  }

  // All threads of a block call this. All lists are there when it returns.
  __device__ __forceinline__ void sort() const {
    chunk_.bins[threadIdx.x] = 0;
    if (threadIdx.x == 0) chunk_.at_home = chunk_.initial = 0;
    __syncthreads();
    OrderedId own[kIdsOfThread];
    look_up(own);
    __syncthreads();
    auto const sorts = chunk_.at_home * kFewAtHome >= static_cast<uint32_t>(count_);
    if (sorts) add_up_bins();
    if (threadIdx.x == 0) chunk_.sorted = sorts;
#pragma unroll
    for (int k = 0; k < kIdsOfThread; ++k) {
      auto const i = id_of(k);
      if (i >= count_) continue;
      auto const place = sorts ? chunk_.bins[own[k].bin] + own[k].number : static_cast<uint32_t>(i);
      chunk_.source[place] = own[k].source.word;
      chunk_.id[place] = static_cast<uint16_t>(i);
    }
    __syncthreads();
  }

 private:
  static __device__ __forceinline__ int32_t id_of(int k) {
    return k * kOrderThreads + static_cast<int32_t>(threadIdx.x);
  }

  // Ids without a slot are spread over the bins, so that their atomic additions do not collide.
  __device__ __forceinline__ uint32_t bin_of(int32_t slot, int32_t i) const {
    if (slot < 0) return static_cast<uint32_t>(i) % kSlotBins;
    return min(static_cast<uint32_t>(slot) >> shift_, uint32_t{kSlotBins - 1});
  }

  __device__ __forceinline__ void look_up(OrderedId (&own)[kIdsOfThread]) const {
    uint32_t at_home = 0, initial = 0;
#pragma unroll
    for (int k = 0; k < kIdsOfThread; ++k) {
      auto const i = id_of(k);
      if (i >= count_) continue;
      auto const slot = slots_[i];
      own[k].source = source_of(sources_, slot);
      own[k].bin = bin_of(slot, i);
      own[k].number = atomicAdd(chunk_.bins + own[k].bin, 1u);
      at_home += is_at_home(sources_, own[k].source) ? 1 : 0;
      initial += own[k].source.is_initial() ? 1 : 0;
    }
    at_home = sum_of_warp(at_home);
    initial = sum_of_warp(initial);
    if (lane_id() != 0) return;
    if (at_home != 0) atomicAdd(&chunk_.at_home, at_home);
    if (initial != 0) atomicAdd(&chunk_.initial, initial);
  }

  __device__ __forceinline__ void add_up_bins() const {
    auto const own = chunk_.bins[threadIdx.x];
    auto const up_to = sum_up_to_lane(own);
    auto const warp = threadIdx.x / 32;
    if (lane_id() == 31) chunk_.of_warps[warp] = up_to;
    __syncthreads();
    auto before = up_to - own;
    for (uint32_t w = 0; w < warp; ++w) before += chunk_.of_warps[w];
    chunk_.bins[threadIdx.x] = before;
    __syncthreads();
  }

  RowSources const& sources_;
  int32_t const* slots_;  // of the chunk
  int32_t count_;
  OrderedChunk& chunk_;
  int shift_;  // from slots to bins
};

// Copies a chunk in the order that is given.
template <class In, class Out>
struct OrderedRows {
  TierRows<In, Out> rows;
  OrderedChunk const& chunk;
  int64_t first;  // id of the feature
  int32_t count;

  // All threads of a block call this; a tile of lanes copies a row.
  __device__ __forceinline__ void copy() const {
    auto const tile = RowTile::of_row(rows.sources.table.dim);
    auto const own = static_cast<int32_t>(threadIdx.x / 32) * tile.per_warp + tile.index;
    auto const all = tile.per_warp * kOrderWarps;
    auto const paced = tile.per_warp * kBusWarps;
    if (!chunk.sorted) {
      copy_rows<kTierRowsInFlight>(tile, own, all);
    } else if (own < paced) {
      copy_rows<1>(tile, own, paced);
    }
    if (chunk.initial == 0) return;
    for (auto i = own; i < count; i += all) write_initial(tile, i);
  }

 private:
  // Copies every `tiles`-th row from `own` on. A few of them go together, with all loads before all
  // stores.
  template <int kInFlight>
  __device__ __forceinline__ void copy_rows(RowTile const& tile, int32_t own, int32_t tiles) const {
    auto const dim = rows.sources.table.dim;
    for (auto base = own; base < count; base += tiles * kInFlight) {
      for (auto c = tile.first_column(); c < dim; c += tile.step()) {
        copy_quads<kInFlight>(base, tiles, c);
      }
    }
  }

  template <int kInFlight>
  __device__ __forceinline__ void copy_quads(int32_t base, int32_t tiles, int32_t c) const {
    auto const dim = rows.sources.table.dim;
    RawQuad quad[kInFlight];
#pragma unroll
    for (int r = 0; r < kInFlight; ++r) {
      auto const source = source_at(base + r * tiles);
      quad[r] = RawQuad{{0, 0, 0, 0}};
      if (source.is_row()) quad[r] = load_quad(rows.in, source.row(), c, dim);
    }
#pragma unroll
    for (int r = 0; r < kInFlight; ++r) {
      auto const i = base + r * tiles;
      if (i >= count || source_at(i).is_initial()) continue;
      rows.store(first + chunk.id[i], c, to_floats(rows.in, quad[r]));
    }
  }

  __device__ __forceinline__ void write_initial(RowTile const& tile, int32_t i) const {
    auto const source = source_at(i);
    if (!source.is_initial()) return;
    auto const position = first + chunk.id[i];
    for (auto c = tile.first_column(); c < rows.sources.table.dim; c += tile.step()) {
      rows.store(position, c, rows.initial(source, position, c));
    }
  }

  __device__ __forceinline__ RowSource source_at(int32_t i) const {
    return {i < count ? chunk.source[i] : RowSource::kPadding};
  }
};

// Blocks take chunks by turns.
template <bool kFloats, class Size>
__global__ void __launch_bounds__(kOrderThreads)
    ordered_rows_kernel(__grid_constant__ TierRowsCall<Size> const call) {
  __shared__ OrderedChunk chunk;
  if (blockIdx.x == 0 && threadIdx.x == 0 && call.done != nullptr) *call.done = 0;
  for (auto c = blockIdx.x; c < call.first_block[call.num_features]; c += gridDim.x) {
    auto const f = feature_of_block(call, c);
    auto const& feature = call.features[f];
    auto const& sources = call.sources[feature.table];
    auto const number = int64_t{c - call.first_block[f]};
    auto const chunks = int64_t{call.first_block[f + 1] - call.first_block[f]};
    auto const first = feature.num_ids * number / chunks;
    auto const count = static_cast<int32_t>(feature.num_ids * (number + 1) / chunks - first);
    ChunkSorter(sources, feature.slots + first, count, chunk).sort();
    auto const run = [&](auto in, auto out) {
      auto const rows = TierRows<decltype(in), decltype(out)>{sources, feature, in, out};
      OrderedRows<decltype(in), decltype(out)>{rows, chunk, first, count}.copy();
    };
    if constexpr (kFloats) {
      run(FloatVectors{}, FloatVectors{});
    } else {
      auto const vectors = moves_vectors(feature.rows, sources.table.dim);
      run(stored_format(sources), AnyFormat{feature.row_type, vectors});
    }
    __syncthreads();  // the lists are read
  }
}

// ---- host ---------------------------------------------------------------------------------------

// Are the rows of a feature copied by these kernels?
inline bool copies_in_order(TierRowsArgs const& args, FeatureRef const& feature) {
  return args.serves != 0 && feature.pooling != Pooling::kNoRows && !pools(feature);
}

// As many for each block, where a feature has ids for all blocks: then all work on one feature.
inline int64_t chunks_of(FeatureRef const& feature, int64_t blocks) {
  auto const chunks = ceil_div(feature.num_ids, int64_t{kLeastChunkIds});
  if (chunks <= blocks) return chunks;
  return ceil_div(feature.num_ids, blocks * kChunkIds) * blocks;
}

}  // namespace dynemb::cuda
