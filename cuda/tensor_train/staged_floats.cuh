// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/staged_floats.cuh: factors of float32 of rows whose suffixes are in shared
// memory (cuda/tensor_train/staged_suffixes.cuh), multiplied in TensorFloat-32 or as in float32.
//
// A lane reads four ranks of a prefix at once: ranks are permuted, in prefix and suffix alike.
#pragma once

#include "cuda/tensor_train/numbers.cuh"
#include "cuda/tensor_train/tile_product.cuh"

namespace dynemb::cuda {

template <int kOfRanks, int kOfColumns, bool kExact>
struct StagedFloats {
  using Number = float;
  static constexpr int kRanks = kOfRanks, kColumns = kOfColumns;
  static constexpr int kSteps = kRanks / 8;
  static constexpr int kQuads = kColumns / 4;
  static constexpr int kSize = kRanks * kColumns + 16;  // the next one begins in other banks
  static constexpr int kBytes = kSize * int{sizeof(float)};
  using Sums = float[kQuads][4][4];

  // A suffix in shared memory: of four columns at a time all ranks, those of one step of a product
  // side by side. Where four columns of a rank are: the rank 16 * v + 4 * q + r is number r % 2 of
  // lane q in step 2 * v + r / 2.
  static __device__ __forceinline__ int place(int quad, int rank) {
    auto const step = rank / 16 * 2 + rank % 4 / 2;
    return (quad * kRanks + (2 * step + rank % 2) * 4 + rank % 16 / 4) * 4;
  }

  // Returns the number i of this lane in a step.
  static __device__ __forceinline__ int place_in_step(int quad, int step, int i) {
    return (quad * kRanks + (2 * step + i) * 4 + lane_id() % 4) * 4;
  }

  // Some suffixes, rounded unless exact, by all threads of a block.
  static __device__ __forceinline__ void stage(float const* from, int32_t count, char* memory) {
    constexpr int kOfSuffix = kRanks * kQuads;  // of four columns
    auto* const to = reinterpret_cast<float*>(memory);
    auto const step = static_cast<int32_t>(blockDim.x);
    for (auto i = static_cast<int32_t>(threadIdx.x); i < count * kOfSuffix; i += step) {
      auto const suffix = i / kOfSuffix, rank = i % kOfSuffix / kQuads;
      auto four = load_four(from + int64_t{i} * 4);
      if constexpr (!kExact) {
        four = {__uint_as_float(rounded_to_tf32(four.x)), __uint_as_float(rounded_to_tf32(four.y)),
                __uint_as_float(rounded_to_tf32(four.z)), __uint_as_float(rounded_to_tf32(four.w))};
      }
      *reinterpret_cast<float4*>(to + suffix * kSize + place(i % kQuads, rank)) = four;
    }
  }

  // A prefix as the left matrix of a product, its ranks permuted.
  struct Prefix {
    LeftTile<kExact> tiles[kSteps];

    __device__ __forceinline__ Prefix(float const* prefix, int64_t low, int64_t high) {
#pragma unroll
      for (int v = 0; v < kSteps / 2; ++v) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          auto const* const row = prefix + (half == 0 ? low : high);
          auto const four = load_four(row + 16 * v + 4 * (lane_id() % 4));
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            tiles[2 * v + r / 2].set(half + r % 2 * 2, number_of(four, r));
          }
        }
      }
    }
  };

  // The products of eight rows: of four columns each, sums as those of a tile.
  static __device__ __forceinline__ void multiply(Prefix const& prefix, char const* memory,
                                                  Sums& sums) {
    auto const* const suffix = reinterpret_cast<float const*>(memory);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int quad = 0; quad < kQuads; ++quad) {
        float4 numbers[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          numbers[i] = *reinterpret_cast<float4 const*>(suffix + place_in_step(quad, s, i));
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          RightTile<kExact> right;
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            auto const x = number_of(numbers[i], j);
            if constexpr (kExact) {
              right.set(i, x);
            } else {
              right.high[i] = __float_as_uint(x);
            }
          }
          add_product<kExact>(sums[quad][j], prefix.tiles[s], right);
        }
      }
    }
  }

  // Writes row m of one row of the table. With eight columns two neighbours exchange halves: a
  // store then writes 32 bytes side by side. All lanes call this.
  static __device__ __forceinline__ void store(float* row, int m, bool exists,
                                               float4 const (&columns)[kQuads]) {
    if constexpr (kColumns == 4) {
      if (exists) *reinterpret_cast<float4*>(row + m * 4) = columns[0];
    } else {
      auto const odd = m % 2 != 0;
      auto const given = odd ? columns[0] : columns[1];
      float4 const got{
          __shfl_xor_sync(kFullWarp, given.x, 4), __shfl_xor_sync(kFullWarp, given.y, 4),
          __shfl_xor_sync(kFullWarp, given.z, 4), __shfl_xor_sync(kFullWarp, given.w, 4)};
      auto* const to = row + (m & ~1) * kColumns + (odd ? 4 : 0);
      if (!exists) return;
      *reinterpret_cast<float4*>(to) = odd ? got : columns[0];
      *reinterpret_cast<float4*>(to + kColumns) = odd ? columns[1] : got;
    }
  }
};

}  // namespace dynemb::cuda
