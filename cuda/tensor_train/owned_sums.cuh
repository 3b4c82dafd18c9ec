// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/owned_sums.cuh: gradients of consecutive suffixes, in the registers of one
// warp. It adds the rows of these suffixes alone, so no two warps ever add to one sum.
#pragma once

#include <type_traits>

#include "cuda/tensor_train/stage_copies.cuh"
#include "cuda/tensor_train/tile_product.cuh"

namespace dynemb::cuda {

constexpr int kSumWarps = 16;
constexpr int kSumThreads = 32 * kSumWarps;

// Tiles of 16 ranks, and of 8 columns, that a warp has sums of: 64 registers of a lane at most.
constexpr int rank_tiles_of(int32_t k) { return k <= 16 ? 1 : k <= 32 ? 2 : 4; }
constexpr int column_tiles_of(int rank_tiles) { return rank_tiles == 4 ? 4 : 8; }

// The columns of a block's suffixes.
constexpr int32_t columns_of_block(int32_t k) {
  return kSumWarps * kTileColumns * column_tiles_of(rank_tiles_of(k));
}

// Number `i` of a lane's ranks, where 2 * t + h is at row lane / 4 + 8 * h of tile t. A lane's
// ranks are consecutive, four at most.
template <int kRankTiles>
__device__ __forceinline__ int32_t rank_of_lane(int i) {
  constexpr int kTogether = kRankTiles == 1 ? 2 : 4;
  return lane_id() / 4 * kTogether + i % kTogether + i / kTogether * 32;
}

// The ranks of a lane in the rows lane % 4 + 4 * q of a prefix.
template <int kRankTiles, bool kExact>
class StagedPrefix {
 public:
  __device__ __forceinline__ StagedPrefix(PairShape const& shape, float const* prefix) {
    constexpr int kTogether = kRankTiles == 1 ? 2 : 4;
    using Vector = std::conditional_t<kRankTiles == 1, float2, float4>;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      auto const m = lane_id() % 4 + 4 * q;
      auto const* const row = prefix + m * (shape.k + StageLayout::kPad);
#pragma unroll
      for (int i = 0; i < 2 * kRankTiles; i += kTogether) {
        auto const rank = rank_of_lane<kRankTiles>(i);
        Vector vector{};
        if (m < shape.m && rank < shape.k) vector = *reinterpret_cast<Vector const*>(row + rank);
        put(q, i, vector);
      }
    }
  }

  __device__ __forceinline__ LeftTile<kExact> tile(int t, int step) const {
    LeftTile<kExact> tile;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      auto const bits = numbers_[2 * step + i / 2][2 * t + i % 2];
      if constexpr (kExact) {
        tile.set(i, __uint_as_float(bits));
      } else {
        tile.high[i] = bits;
      }
    }
    return tile;
  }

 private:
  __device__ __forceinline__ void put(int q, int i, float x) {
    numbers_[q][i] = kExact ? __float_as_uint(x) : rounded_to_tf32(x);
  }
  __device__ __forceinline__ void put(int q, int i, float2 const& two) {
    put(q, i, two.x);
    put(q, i + 1, two.y);
  }
  __device__ __forceinline__ void put(int q, int i, float4 const& four) {
    put(q, i, float2{four.x, four.y});
    put(q, i + 2, float2{four.z, four.w});
  }

  uint32_t numbers_[4][2 * kRankTiles];  // rounded, unless exact
};

// The sums of a warp: those of consecutive suffixes, whose columns stand side by side.
template <int kRankTiles, bool kExact>
class OwnedSums {
 public:
  __device__ __forceinline__ OwnedSums(PairShape const& shape, int32_t part)
      : shape_(shape), gradients_(shape) {
    n_shift_ = 31 - __clz(shape.n);
    auto const suffixes = kColumnTiles * kTileColumns >> n_shift_;
    first_ = (part * kSumWarps + static_cast<int32_t>(threadIdx.x) / 32) * suffixes;
    auto const left = shape.num_suffixes - first_;
    count_ = left < suffixes ? static_cast<uint32_t>(left > 0 ? left : 0)
                             : static_cast<uint32_t>(suffixes);
    in_tile_ = max(1, kTileColumns >> n_shift_);
    tiles_of_suffix_ = (1u << max(1, shape.n / kTileColumns)) - 1;
#pragma unroll
    for (int t = 0; t < kRankTiles; ++t) {
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[t][j][i] = 0.0f;
      }
    }
  }

  // Adds the rows of a slot that belong to suffixes of this warp.
  __device__ __forceinline__ void add(float const* stage, StageLayout const& layout, int32_t number,
                                      Slot const& slot) {
    auto const* const suffixes = reinterpret_cast<int32_t const*>(stage) + slot.staged;
    auto const suffix = lane_id() < slot.count ? suffixes[lane_id()] : -1;
    auto own = static_cast<uint32_t>(suffix) - static_cast<uint32_t>(first_);
    if (own >= count_) own = kNone;
    auto const first_tile = own << n_shift_ >> 3;
    auto const tiles =
        __reduce_or_sync(kFullWarp, own == kNone ? 0u : tiles_of_suffix_ << first_tile);
    if (tiles == 0) return;
    auto const prefix_size = shape_.m * (shape_.k + StageLayout::kPad);
    StagedPrefix<kRankTiles, kExact> const prefix(shape_,
                                                  stage + layout.prefixes + number * prefix_size);
    auto const* const d_rows = stage + layout.d_rows + slot.staged * gradients_.row_size;
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
      if ((tiles >> j & 1) != 0) add_tile(j, prefix, own, d_rows);
    }
  }

  // As [num_suffixes, k, n].
  __device__ void write(float* out) const {
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        auto const column = j * kTileColumns + sum_column(c);
        auto const own = static_cast<uint32_t>(column >> n_shift_);
        if (own >= count_) continue;
        auto* const to =
            out + (int64_t{first_} + own) * shape_.k * shape_.n + (column & (shape_.n - 1));
#pragma unroll
        for (int i = 0; i < 2 * kRankTiles; ++i) {
          auto const rank = rank_of_lane<kRankTiles>(i);
          if (rank < shape_.k) to[rank * shape_.n] = sums_[i / 2][j][i % 2 * 2 + c];
        }
      }
    }
  }

 private:
  static constexpr int kColumnTiles = column_tiles_of(kRankTiles);
  static constexpr uint32_t kNone = ~0u;

  __device__ __forceinline__ void add_tile(int j, StagedPrefix<kRankTiles, kExact> const& prefix,
                                           uint32_t own, float const* d_rows) {
    auto const column = j * kTileColumns + lane_id() / 4;
    auto const row = row_of(static_cast<uint32_t>(column >> n_shift_), j, own);
    RightTile<kExact> right[2];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      auto const m = lane_id() % 4 + 4 * q;
      auto const at = gradients_.place(row, (m << n_shift_) + (column & (shape_.n - 1)));
      right[q / 2].set(q % 2, row >= 0 && m < shape_.m ? d_rows[at] : 0.0f);
    }
#pragma unroll
    for (int t = 0; t < kRankTiles; ++t) {
      if constexpr (kExact) {  // tensor cores truncate sums: over many rows that is a bias
        float part[4] = {};
        for (int s = 0; s < 2; ++s) add_product<kExact>(part, prefix.tile(t, s), right[s]);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[t][j][i] += part[i];
      } else {
#pragma unroll
        for (int s = 0; s < 2; ++s) add_product<kExact>(sums_[t][j], prefix.tile(t, s), right[s]);
      }
    }
  }

  // The row, in its slot, of suffix `wanted`, which this lane has in tile j; -1: there is none.
  __device__ __forceinline__ int32_t row_of(uint32_t wanted, int j, uint32_t own) const {
    auto const first = static_cast<uint32_t>(j * kTileColumns >> n_shift_);
    int32_t row = -1;
    for (int32_t i = 0; i < in_tile_; ++i) {
      auto const suffix = first + static_cast<uint32_t>(i);
      auto const lanes = __ballot_sync(kFullWarp, own == suffix);
      if (suffix == wanted) row = __ffs(static_cast<int>(lanes)) - 1;
    }
    return row;
  }

  PairShape const& shape_;
  StagedGradients gradients_;
  int n_shift_;
  int32_t first_;             // of the suffixes
  uint32_t count_;            // of them
  int32_t in_tile_;           // suffixes that a tile has columns of
  uint32_t tiles_of_suffix_;  // a bit for each
  float sums_[kRankTiles][kColumnTiles][4];
};

}  // namespace dynemb::cuda
