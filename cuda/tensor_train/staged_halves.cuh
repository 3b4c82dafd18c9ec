// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/staged_halves.cuh: factors of bfloat16 of rows whose suffixes are in shared
// memory (cuda/tensor_train/staged_suffixes.cuh).
//
// A lane reads four ranks at once: in a block of 16 ranks, lane q of four has 4 * q and the next
// three. They are numbers 2 * q, 2 * q + 1, 2 * q + 8 and 2 * q + 9 of the product.
#pragma once

#include "cuda/tensor_train/numbers.cuh"
#include "cuda/tensor_train/tile_product.cuh"

namespace dynemb::cuda {

template <int kOfRanks, int kOfColumns>
struct StagedHalves {
  using Number = BFloat16;
  static constexpr int kRanks = kOfRanks, kColumns = kOfColumns;
  static constexpr int kBlocks = kRanks / 16;
  static constexpr int kQuads = kColumns / 4;
  static constexpr int kPieces = kRanks * kColumns / 8;  // of 16 bytes
  static constexpr int kBytes = 16 * kPieces + 64;       // the next one begins in other banks
  using Sums = float[kQuads][4][4];

  // A piece is two columns of four ranks.
  static __device__ __forceinline__ int piece(int quad, int block, int pair, int lane) {
    return ((quad * kBlocks + block) * 2 + pair) * 4 + lane;
  }

  // Some suffixes, by all threads of a block.
  static __device__ __forceinline__ void stage(BFloat16 const* from, int32_t count, char* memory) {
    auto const step = static_cast<int32_t>(blockDim.x);
    for (auto i = static_cast<int32_t>(threadIdx.x); i < count * kPieces; i += step) {
      auto const suffix = i / kPieces, piece = i % kPieces;
      auto const lane = piece % 4, pair = piece / 4 % 2;
      auto const block = piece / 8 % kBlocks, quad = piece / 8 / kBlocks;
      auto const* const own = from + int64_t{suffix} * (kRanks * kColumns) +
                              (16 * block + 4 * lane) * kColumns + 4 * quad + 2 * pair;
      uint32_t two[4];  // columns, of each rank
#pragma unroll
      for (int r = 0; r < 4; ++r) two[r] = load_vector<uint32_t>(own + r * kColumns);
      *reinterpret_cast<uint4*>(memory + suffix * kBytes + 16 * piece) = {
          low_halves(two[0], two[1]), low_halves(two[2], two[3]), high_halves(two[0], two[1]),
          high_halves(two[2], two[3])};
    }
  }

  // Holds a prefix as the left matrix of a product.
  struct Prefix {
    uint32_t words[kBlocks][4];

    __device__ __forceinline__ Prefix(BFloat16 const* prefix, int64_t low, int64_t high) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          auto const* const row = prefix + (half == 0 ? low : high);
          auto const four = load_vector<uint2>(row + 16 * block + 4 * (lane_id() % 4));
          words[block][half] = four.x;
          words[block][half + 2] = four.y;
        }
      }
    }
  };

  // The products of eight rows: of four columns each, sums as those of a tile.
  static __device__ __forceinline__ void multiply(Prefix const& prefix, char const* suffix,
                                                  Sums& sums) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int quad = 0; quad < kQuads; ++quad) {
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          auto const at = 16 * piece(quad, block, pair, lane_id() % 4);
          auto const four = *reinterpret_cast<uint4 const*>(suffix + at);
          add_half_product(sums[quad][2 * pair], prefix.words[block], {four.x, four.y});
          add_half_product(sums[quad][2 * pair + 1], prefix.words[block], {four.z, four.w});
        }
      }
    }
  }

  // Writes row m of one row of the table.
  static __device__ __forceinline__ void store(BFloat16* row, int m, bool exists,
                                               float4 const (&columns)[kQuads]) {
    if (!exists) return;
    auto* const to = row + m * kColumns;
    auto const first = packed_four(columns[0]);
    if constexpr (kColumns == 4) {
      *reinterpret_cast<uint2*>(to) = first;
    } else {
      auto const second = packed_four(columns[1]);
      *reinterpret_cast<uint4*>(to) = {first.x, first.y, second.x, second.y};
    }
  }
};

}  // namespace dynemb::cuda
