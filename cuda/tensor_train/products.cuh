// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/products.cuh: each prefix times the suffixes of its rows. A warp keeps the
// prefix in registers and multiplies it by eight columns of suffixes at a time.
#pragma once

#include "cuda/grid/host.h"
#include "cuda/tensor_train/pair_columns.cuh"
#include "cuda/tensor_train/tile_product.cuh"

namespace dynemb::cuda {

// 16 rows of a prefix, from rank `first` on; zeros past its ends.
template <int kSteps, bool kExact>
struct LeftTiles {
  LeftTile<kExact> tiles[kSteps];

  __device__ __forceinline__ LeftTiles(PairRowsArgs const& args, int64_t prefix, int32_t m0,
                                       int32_t first) {
    auto const& shape = args.shape;
    auto const* const numbers = args.prefix + prefix_offset(shape, prefix);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      auto const m = m0 + left_row(half);
      auto const* const row = numbers + (m < shape.m ? prefix_row_offset(shape, m) : 0);
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
#pragma unroll
        for (int i = half; i < 4; i += 2) {
          auto const rank = first + s * 8 + left_column(i);
          tiles[s].set(i, m < shape.m && rank < shape.k ? row[rank] : 0.0f);
        }
      }
    }
  }
};

template <int kSteps, bool kExact>
__device__ __forceinline__ void add_ranks(PairShape const& shape, float const* right,
                                          LeftTiles<kSteps, kExact> const& left, int32_t first,
                                          float (&sums)[4]) {
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    RightTile<kExact> tile;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      auto const rank = first + s * 8 + right_row(i);
      auto const exists = right != nullptr && rank < shape.k;
      tile.set(i, exists ? right[rank * shape.n] : 0.0f);
    }
    add_product<kExact>(sums, left.tiles[s], tile);
  }
}

__device__ __forceinline__ void store_sums(PairRowsArgs const& args, PairColumns const& columns,
                                           uint32_t first, int32_t m0, float const (&sums)[4]) {
  auto const m = args.shape.m, n = args.shape.n;
  auto const pairs = n % 2 == 0;  // two columns of one row
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    auto const column = first + static_cast<uint32_t>(sum_column(half));
    if ((pairs && half == 1) || column >= columns.count()) break;
    auto const place = columns.at(column);
    auto* const out = args.rows + place.row * (m * n) + place.n;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      auto const row = m0 + sum_row(i);
      if (row >= m) continue;
      if (pairs) {
        *reinterpret_cast<float2*>(out + row * n) = {sums[i], sums[i + 1]};
      } else {
        out[row * n] = sums[i + half];
      }
    }
  }
}

template <int kSteps, bool kExact>
__global__ void __launch_bounds__(kThreads, kSteps <= 4 ? 3 : 2)
    products_kernel(__grid_constant__ PairRowsArgs const args) {
  auto const& shape = args.shape;
  auto const warps = int64_t{gridDim.x} * kWarpsPerBlock;
  constexpr int kOfRegisters = kSteps * 8;
  auto const suffix_at = [&](PairColumns const& columns, uint32_t column) -> float const* {
    return column < columns.count() ? suffix_of(shape, args.suffix, columns.at(column)) : nullptr;
  };
  for (auto prefix = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / 32;
       prefix < shape.num_prefixes; prefix += warps) {
    PairColumns const columns(shape, rows_of_prefix(shape, prefix));
    for (int32_t m0 = 0; m0 < shape.m && columns.count() > 0; m0 += kTileRows) {
      LeftTiles<kSteps, kExact> const held(args, prefix, m0, 0);
      auto const* next = suffix_at(columns, static_cast<uint32_t>(right_column()));
      for (uint32_t first = 0; first < columns.count(); first += kTileColumns) {
        auto const* const suffix = next;
        next = suffix_at(columns, first + static_cast<uint32_t>(kTileColumns + right_column()));
        float sums[4] = {};
        add_ranks(shape, suffix, held, 0, sums);
        for (auto rank = kOfRegisters; rank < shape.k; rank += kOfRegisters) {
          LeftTiles<kSteps, kExact> const more(args, prefix, m0, rank);
          add_ranks(shape, suffix, more, rank, sums);
        }
        store_sums(args, columns, first, m0, sums);
      }
    }
  }
}

inline cudaError_t launch_products(PairRowsArgs const& args, cudaStream_t stream) {
  if (args.shape.num_prefixes == 0 || args.shape.num_rows == 0) return cudaSuccess;
  auto const blocks = blocks_of_prefixes(args.shape, kWarpsPerBlock);
  return with_steps(args.shape.k, args.shape.exact != 0, [&](auto steps, auto exact) {
    return launch(products_kernel<steps(), exact()>, blocks, stream, args);
  });
}

}  // namespace dynemb::cuda
