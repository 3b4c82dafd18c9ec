// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/products.cuh: a matrix of each prefix times a matrix of each of its rows. A
// warp keeps the first in registers and multiplies it by those of all rows, eight columns at a
// time.
#pragma once

#include "cuda/grid/host.h"
#include "cuda/tensor_train/pair_columns.cuh"
#include "cuda/tensor_train/tile_product.cuh"

namespace dynemb::cuda {

// A prefix is rows x inner; where `right` has a matrix for each row, it is transposed to that.
// right[...] is inner x n, out[i] is rows x n.
struct ProductsCall {
  PairShape shape;
  float const* prefix;
  int32_t rows;
  int32_t inner;
  float const* right;  // [num_suffixes, inner * n], or [num_rows, inner * n]
  float* out;          // [num_rows, rows * n]
};

// 16 rows of the left matrix, from `first` of its inner dimension on; zeros past its ends. Where
// its numbers are in a prefix does not depend on which prefix it is.
template <int kSteps, bool kExact, bool kTransposed>
struct LeftTiles {
  LeftTile<kExact> tiles[kSteps];

  struct Places {
    int32_t rows, inner;                      // of this lane, that exist: from the first one on
    int64_t m[kTransposed ? 2 * kSteps : 2];  // where the rows of a prefix are

    __device__ __forceinline__ Places(ProductsCall const& call, int32_t row0, int32_t first)
        : rows(call.rows - row0 - left_row(0)), inner(call.inner - first - left_column(0)) {
      auto const rank = kTransposed ? row0 + left_row(0) : first + left_column(0);
#pragma unroll
      for (int i = 0; i < (kTransposed ? 2 * kSteps : 2); ++i) {
        auto const index = kTransposed ? first + left_column(0) + 4 * i : row0 + left_row(i);
        m[i] = index < call.shape.m ? prefix_row_offset(call.shape, index) + rank : 0;
      }
    }
  };

  __device__ __forceinline__ LeftTiles(float const* prefix, Places const& places) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        auto const row = i % 2 * 8, inner = s * 8 + i / 2 * 4;
        auto const at = kTransposed ? places.m[2 * s + i / 2] + row : places.m[i % 2] + inner;
        tiles[s].set(i, row < places.rows && inner < places.inner ? prefix[at] : 0.0f);
      }
    }
  }
};

template <int kSteps, bool kExact, bool kTransposed>
__device__ __forceinline__ void add_inner(ProductsCall const& call, float const* right,
                                          LeftTiles<kSteps, kExact, kTransposed> const& left,
                                          int32_t first, float (&sums)[4]) {
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    RightTile<kExact> tile;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      auto const inner = first + s * 8 + right_row(i);
      auto const exists = right != nullptr && inner < call.inner;
      tile.set(i, exists ? __ldg(right + inner * call.shape.n) : 0.0f);
    }
    add_product<kExact>(sums, left.tiles[s], tile);
  }
}

// `out` is where the rows of the chunk are.
__device__ __forceinline__ void store_sums(ProductsCall const& call, PairChunk const& columns,
                                           float* out, uint32_t first, int32_t row0,
                                           float const (&sums)[4]) {
  auto const n = call.shape.n;
  auto const pairs = n % 2 == 0;  // two columns of one row
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    auto const column = first + static_cast<uint32_t>(sum_column(half));
    if ((pairs && half == 1) || column >= columns.count()) break;
    auto const place = columns.at(column);
    auto* const to = out + int64_t{place.row} * (call.rows * n) + place.n;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      auto const row = row0 + sum_row(i);
      if (row >= call.rows) continue;
      if (pairs) {
        *reinterpret_cast<float2*>(to + row * n) = {sums[i], sums[i + 1]};
      } else {
        to[row * n] = sums[i + half];
      }
    }
  }
}

// kByRow: `right` has a matrix for each row; else for each suffix.
template <int kSteps, bool kExact, bool kByRow>
__global__ void __launch_bounds__(kThreads, kSteps <= 4 ? 3 : 2)
    products_kernel(__grid_constant__ ProductsCall const call) {
  auto const& shape = call.shape;
  auto const warps = int64_t{gridDim.x} * kWarpsPerBlock;
  constexpr int kOfRegisters = kSteps * 8;
  using Left = LeftTiles<kSteps, kExact, kByRow>;
  using Places = typename Left::Places;
  Places const of_first(call, 0, 0);
  auto const right_of = [&](PairChunk const& chunk, int64_t begin, uint32_t column) {
    auto const place = chunk.at(column);
    auto const number = kByRow ? begin + place.row : chunk.suffix_of(place);
    auto const exists = column < chunk.count() && number >= 0;
    return exists ? call.right + number * (call.inner * shape.n) + place.n : nullptr;
  };
  for (auto prefix = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / 32;
       prefix < shape.num_prefixes; prefix += warps) {
    auto const rows = rows_of_prefix(shape, prefix);
    auto const* const numbers = call.prefix + prefix_offset(shape, prefix);
    for (int32_t row0 = 0; row0 < call.rows && rows.begin < rows.end; row0 += kTileRows) {
      Left const held(numbers, row0 == 0 ? of_first : Places(call, row0, 0));
      for (auto begin = rows.begin; begin < rows.end; begin += 32) {
        PairChunk const chunk(shape, begin, rows.end);
        auto* const out = call.out + begin * (call.rows * shape.n);
#pragma unroll 2
        for (uint32_t first = 0; first < chunk.count(); first += kTileColumns) {
          auto const column = first + static_cast<uint32_t>(right_column());
          auto const* const right = right_of(chunk, begin, column);
          float sums[4] = {};
          add_inner(call, right, held, 0, sums);
          if constexpr (kSteps == kMostSteps) {
            for (auto inner = kOfRegisters; inner < call.inner; inner += kOfRegisters) {
              Left const more(numbers, Places(call, row0, inner));
              add_inner(call, right, more, inner, sums);
            }
          }
          store_sums(call, chunk, out, first, row0, sums);
        }
      }
    }
  }
}

template <bool kByRow>
cudaError_t launch_products(ProductsCall const& call, cudaStream_t stream) {
  if (call.shape.num_prefixes == 0 || call.shape.num_rows == 0) return cudaSuccess;
  auto const blocks = blocks_of_prefixes(call.shape, kWarpsPerBlock);
  return with_steps(call.inner, call.shape.exact != 0, [&](auto steps, auto exact) {
    return launch(products_kernel<steps(), exact(), kByRow>, blocks, stream, call);
  });
}

}  // namespace dynemb::cuda
