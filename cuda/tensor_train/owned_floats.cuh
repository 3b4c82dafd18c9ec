// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/owned_floats.cuh: what a warp adds to the gradients of its suffixes
// (cuda/tensor_train/owned_sums.cuh), from prefixes and gradients of float32.
#pragma once

#include "cuda/tensor_train/shared_place.cuh"
#include "cuda/tensor_train/stage_copies.cuh"
#include "cuda/tensor_train/tile_product.cuh"

namespace dynemb::cuda {

template <int kOfRankTiles, int kOfColumns, bool kExact>
struct OwnedFloats {
  using Number = float;
  using Rows = SharedPlace;
  static constexpr bool kRoundsPrefix = !kExact;
  static constexpr int kRankTiles = kOfRankTiles, kColumns = kOfColumns;
  static constexpr int kRanks = 16 * kRankTiles;
  static constexpr int kSwizzle = StagedGradients<float>::kSwizzle * 4;  // bytes
  static constexpr int kOfStep = 4 * kColumns * 4;  // bytes of four rows of a prefix

  // Number `i` of a lane's ranks, where 2 * t + h is at row lane / 4 + 8 * h of tile t.
  static __device__ __forceinline__ int32_t rank_of_lane(int i) {
    return lane_id() / 4 * 2 + i % 2 + i / 2 * 16;
  }

  // The ranks of a lane in the rows lane % 4 + 4 * q of a prefix.
  class Prefix {
   public:
    __device__ __forceinline__ void load(float const* prefix) {
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        auto const m = lane_id() % 4 + 4 * q;
        auto const* const row = prefix + m * (kRanks + StageLayout::kPad);
#pragma unroll
        for (int t = 0; t < kRankTiles; ++t) {
          auto const two = *reinterpret_cast<float2 const*>(row + rank_of_lane(2 * t));
          numbers_[q][2 * t] = __float_as_uint(two.x);
          numbers_[q][2 * t + 1] = __float_as_uint(two.y);
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
    uint32_t numbers_[4][2 * kRankTiles];  // rounded already, unless exact
  };

  // Of the suffixes of a tile, the one whose row a lane reads.
  static __device__ __forceinline__ int suffix_of_lane() {
    return kColumns == 4 ? lane_id() / 16 : 0;
  }

  // Holds eight columns: of one row, or of two with four columns each.
  struct Right {
    RightTile<kExact> tiles[2];
  };

  // Where a staged row begins, in bytes, and its swizzle (StagedGradients).
  static __device__ __forceinline__ int32_t place_of(int32_t row) {
    return row * (kTileRows * kColumns * 4) + (row & 1) * kSwizzle;
  }

  // `place`: of the row of this lane.
  static __device__ __forceinline__ Right right_of(SharedPlace const& d_rows, int32_t place) {
    auto const first = (lane_id() % 4 * kColumns + lane_id() / 4 % kColumns) * 4;
    auto const even = place ^ first;
    // Of four columns, steps of one row are as far from each other as swizzled numbers.
    auto const odd = kColumns == 4 ? even + kSwizzle - 2 * (place & kSwizzle) : even + kOfStep;
    Right right;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      right.tiles[q / 2].set(q % 2, d_rows.load((q % 2 == 0 ? even : odd) + q / 2 * 2 * kOfStep));
    }
    return right;
  }

  static __device__ __forceinline__ void add(Prefix const& prefix, Right const& right,
                                             float (&sums)[kRankTiles][4]) {
#pragma unroll
    for (int t = 0; t < kRankTiles; ++t) {
      if constexpr (kExact) {  // tensor cores truncate sums: over many rows that is a bias
        float part[4] = {};
#pragma unroll
        for (int s = 0; s < 2; ++s) add_product<kExact>(part, prefix.tile(t, s), right.tiles[s]);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[t][i] += part[i];
      } else {
#pragma unroll
        for (int s = 0; s < 2; ++s) add_product<kExact>(sums[t], prefix.tile(t, s), right.tiles[s]);
      }
    }
  }
};

}  // namespace dynemb::cuda
