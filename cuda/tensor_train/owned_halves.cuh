// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/owned_halves.cuh: what a warp adds to the gradients of its suffixes
// (cuda/tensor_train/owned_sums.cuh), from prefixes and gradients of bfloat16. Both are transposed
// when they are read from shared memory.
#pragma once

#include "cuda/tensor_train/half_product.cuh"
#include "cuda/tensor_train/stage_copies.cuh"

namespace dynemb::cuda {

template <int kOfRankTiles, int kOfColumns>
struct OwnedHalves {
  using Number = BFloat16;
  using Rows = BFloat16 const*;
  static constexpr bool kRoundsPrefix = false;
  static constexpr int kRankTiles = kOfRankTiles, kColumns = kOfColumns;
  static constexpr int kRanks = 16 * kRankTiles;

  // Number `i` of a lane's ranks, where 2 * t + h is at row lane / 4 + 8 * h of tile t.
  static __device__ __forceinline__ int32_t rank_of_lane(int i) {
    return i / 2 * 16 + i % 2 * 8 + lane_id() / 4;
  }

  // All ranks of all rows, as they are staged.
  struct Prefix {
    uint32_t words[kRankTiles][4];

    __device__ __forceinline__ void load(BFloat16 const* prefix) {
      auto const row = lane_id() / 16 * 8 + lane_id() % 8;
      auto const* const from = prefix + row * (kRanks + StageLayout::kPad) + lane_id() / 8 % 2 * 8;
#pragma unroll
      for (int t = 0; t < kRankTiles; ++t) load_transposed(words[t], from + 16 * t);
    }
  };

  // Of the suffixes of a tile, the one whose row a lane reads.
  static __device__ __forceinline__ int suffix_of_lane() {
    return kColumns == 4 ? lane_id() / 8 % 2 : 0;
  }

  // Holds eight columns: of one row, or of two with four columns each.
  struct Right {
    uint32_t words[2];
  };

  // Where a staged row begins.
  static __device__ __forceinline__ int32_t place_of(int32_t row) {
    return row * (kTileRows * kColumns);
  }

  // `place`: of the row of this lane.
  static __device__ __forceinline__ Right right_of(BFloat16 const* d_rows, int32_t place) {
    auto const* const from = d_rows + place;
    Right right;
    if constexpr (kColumns == 8) {
      load_transposed(right.words, from + lane_id() % 16 * 8);
    } else {
      load_two(from, right.words);
    }
    return right;
  }

  static __device__ __forceinline__ void add(Prefix const& prefix, Right const& right,
                                             float (&sums)[kRankTiles][4]) {
#pragma unroll
    for (int t = 0; t < kRankTiles; ++t) add_half_product(sums[t], prefix.words[t], right.words);
  }

 private:
  // 16 bytes of a row hold four columns at an even m, and then those at the next one. Once they are
  // transposed, the lanes of the first four columns have what is at even ones of both rows, the
  // others what is at odd ones. Each needs both of one row.
  static __device__ __forceinline__ void load_two(BFloat16 const* from, uint32_t (&right)[2]) {
    uint32_t words[2];
    load_transposed(words, from + lane_id() % 8 * 8);
    auto const odd = lane_id() >= 16;
    auto const got = __shfl_xor_sync(kFullWarp, odd ? words[0] : words[1], 16);
    right[0] = odd ? got : words[0];
    right[1] = odd ? words[1] : got;
  }
};

}  // namespace dynemb::cuda
