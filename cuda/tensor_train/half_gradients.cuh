// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/half_gradients.cuh: the gradient of each prefix where factors and rows are
// bfloat16. A warp sums over the rows of a prefix in registers, in float32. Four rows of four
// columns are the inner dimension of one product: a lane has four columns of a row as they lie in
// memory.
#pragma once

#include <type_traits>

#include "cuda/grid/host.h"
#include "cuda/tensor_train/numbers.cuh"
#include "cuda/tensor_train/row_octets.cuh"

namespace dynemb::cuda {

constexpr int kRowsOfProduct = 4;

// What a lane reads of one row.
struct HalfRow {
  BFloat16 const* gradients;
  BFloat16 const* suffix;
  bool exists;  // else its gradients are zeros

  __device__ __forceinline__ HalfRow(PairGradientsOf<BFloat16> const& args, RowChunk const& chunk,
                                     int64_t begin, int32_t row) {
    auto const& shape = args.shape;
    auto const number = chunk.suffix_of(row);
    exists = number >= 0;
    // A suffix that the prefix has anyway: zeros times what is not finite are not zeros.
    auto const used = exists ? number : chunk.fallback;
    gradients = args.d_rows + (begin + min(row, chunk.count - 1)) * (kTileRows * shape.n);
    suffix = args.suffix + int64_t{used} * (shape.k * shape.n);
  }
};

// Holds all columns of four rows at m and m + 8, in words of two columns.
template <int kColumns>
struct HalfGradients {
  uint32_t words[2][kColumns / 2];

  __device__ __forceinline__ explicit HalfGradients(HalfRow const& row) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      auto const* const from = row.gradients + left_row(i) * kColumns;
      if constexpr (kColumns == 4) {
        auto const four = load_once<uint2>(from);
        put(i, 0, row.exists ? four : uint2{0, 0});
      } else {
        auto const eight = load_once<uint4>(from);
        put(i, 0, row.exists ? uint2{eight.x, eight.y} : uint2{0, 0});
        put(i, 2, row.exists ? uint2{eight.z, eight.w} : uint2{0, 0});
      }
    }
  }

  __device__ __forceinline__ void put(int i, int first, uint2 const& two) {
    words[i][first] = two.x;
    words[i][first + 1] = two.y;
  }
};

// Adds four columns of four rows.
template <int kSteps, int kColumns>
__device__ __forceinline__ void add_half_rows(HalfRow const& row,
                                              HalfGradients<kColumns> const& gradients, int column,
                                              float (&sums)[kSteps][4]) {
  uint2 suffixes[kSteps];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    suffixes[s] = load_vector<uint2>(row.suffix + (s * 8 + right_column()) * kColumns + column);
  }
  auto const& words = gradients.words;
  auto const first = column / 2;
  uint32_t const left[4] = {words[0][first], words[1][first], words[0][first + 1],
                            words[1][first + 1]};
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    add_half_product(sums[s], left, {suffixes[s].x, suffixes[s].y});
  }
}

// Blocks of a multiprocessor: more of them hide what a warp waits for, where registers allow it.
template <int kSteps, int kColumns>
constexpr int kHalfBlocks = kSteps * kColumns <= 16 ? 4 : 2;

template <int kSteps, int kColumns>
__global__ void __launch_bounds__(kThreads, kHalfBlocks<kSteps, kColumns>)
    half_gradients_kernel(__grid_constant__ PairGradientsOf<BFloat16> const args) {
  auto const add_chunk = [&](int64_t begin, RowChunk const& chunk, float (&sums)[kSteps][4]) {
    if (chunk.fallback < 0) return;
#pragma unroll 2
    for (int32_t first = 0; first < chunk.count; first += kRowsOfProduct) {
      HalfRow const row(args, chunk, begin, first + lane_id() % kRowsOfProduct);
      HalfGradients<kColumns> const gradients(row);
#pragma unroll
      for (int column = 0; column < kColumns; column += 4) {
        add_half_rows<kSteps, kColumns>(row, gradients, column, sums);
      }
    }
  };
  sum_over_rows<kSteps>(args.shape, add_chunk, [&](int64_t at, float first, float second) {
    *reinterpret_cast<uint32_t*>(args.d_prefix + at) = packed_halves(first, second);
  });
}

// The sizes may be half (core/pair_rows.h), and there are prefixes and suffixes.
inline cudaError_t half_prefix_gradients(PairGradientsOf<BFloat16> const& args,
                                         cudaStream_t stream) {
  auto const with = [&](auto steps, auto columns) {
    auto const blocks = blocks_of_gradients(args.shape, kHalfBlocks<steps(), columns()>);
    return launch(half_gradients_kernel<steps(), columns()>, blocks, stream, args);
  };
  auto const with_columns = [&](auto steps) {
    return args.shape.n == 4 ? with(steps, std::integral_constant<int, 4>{})
                             : with(steps, std::integral_constant<int, 8>{});
  };
  return args.shape.k == 32 ? with_columns(std::integral_constant<int, 4>{})
                            : with_columns(std::integral_constant<int, 8>{});
}

}  // namespace dynemb::cuda
