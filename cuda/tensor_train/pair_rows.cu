// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/pair_rows.cu: rows that are products of two factors. A warp keeps a prefix in
// registers and multiplies it by the suffixes of all of its rows, eight columns at a time.
#include <algorithm>
#include <type_traits>

#include "cuda/grid/host.h"
#include "cuda/launch.h"
#include "cuda/tensor_train/pair_columns.cuh"
#include "cuda/tensor_train/tile_product.cuh"

namespace dynemb::cuda {
namespace {

// The ranks from `first` on; those past the last are zeros.
template <int kSteps, bool kExact>
struct PrefixTiles {
  LeftTile<kExact> tiles[kSteps];

  __device__ PrefixTiles(PairRowsArgs const& args, int64_t prefix, int32_t m0, int32_t first) {
    auto const& shape = args.shape;
    auto const* const numbers = args.prefix + prefix * shape.m * shape.k;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        auto const m = m0 + left_row(i), k = first + s * 8 + left_column(i);
        auto const exists = m < shape.m && k < shape.k;
        tiles[s].set(i, exists ? numbers[int64_t{m} * shape.k + k] : 0.0f);
      }
    }
  }
};

template <int kSteps, bool kExact>
__device__ __forceinline__ void add_ranks(PairRowsArgs const& args, PairColumn const& column,
                                          PrefixTiles<kSteps, kExact> const& prefix, int32_t first,
                                          float (&sums)[4]) {
  auto const& shape = args.shape;
  auto const* const suffix = args.suffix + int64_t{column.suffix} * shape.k * shape.n + column.n;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    RightTile<kExact> tile;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      auto const k = first + s * 8 + right_row(i);
      auto const exists = column.exists && k < shape.k;
      tile.set(i, exists ? suffix[int64_t{k} * shape.n] : 0.0f);
    }
    add_product<kExact>(sums, prefix.tiles[s], tile);
  }
}

__device__ __forceinline__ void store(PairRowsArgs const& args, PairColumns const& columns,
                                      int64_t first, int32_t m0, float const (&sums)[4]) {
  auto const& shape = args.shape;
  auto const pairs = shape.n % 2 == 0;  // two columns of one row
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    auto const column = first + sum_column(half);
    if ((pairs && half == 1) || column >= columns.count()) break;
    auto const place = columns.at(column);
    auto* const row = args.rows + place.row * shape.m * shape.n + place.n;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      auto const m = m0 + sum_row(i);
      if (m >= shape.m) continue;
      if (pairs) {
        *reinterpret_cast<float2*>(row + int64_t{m} * shape.n) = {sums[i], sums[i + 1]};
      } else {
        row[int64_t{m} * shape.n] = sums[i + half];
      }
    }
  }
}

template <int kSteps, bool kExact>
__global__ void __launch_bounds__(kThreads)
    pair_rows_kernel(__grid_constant__ PairRowsArgs const args) {
  auto const& shape = args.shape;
  auto const warps = int64_t{gridDim.x} * kWarpsPerBlock;
  constexpr int kRanks = kSteps * 8;
  for (auto prefix = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / 32;
       prefix < shape.num_prefixes; prefix += warps) {
    PairColumns const columns(shape, prefix);
    for (int32_t m0 = 0; m0 < shape.m && columns.count() > 0; m0 += kTileRows) {
      PrefixTiles<kSteps, kExact> const held(args, prefix, m0, 0);
      for (int64_t first = 0; first < columns.count(); first += kTileColumns) {
        auto const column = columns.at(first + right_column());
        float sums[4] = {};
        add_ranks(args, column, held, 0, sums);
        for (int32_t k = kRanks; k < shape.k; k += kRanks) {  // more than registers hold
          PrefixTiles<kSteps, kExact> const more(args, prefix, m0, k);
          add_ranks(args, column, more, k, sums);
        }
        store(args, columns, first, m0, sums);
      }
    }
  }
}

}  // namespace

size_t pair_rows_scratch_bytes(PairRowsArgs const& /*args*/) { return 0; }

cudaError_t pair_rows(PairRowsArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  if (args.shape.num_prefixes == 0 || args.shape.num_rows == 0) return cudaSuccess;
  constexpr int64_t kMostBlocks = 1 << 20;
  auto const blocks = std::min(kMostBlocks, ceil_div(args.shape.num_prefixes, kWarpsPerBlock));
  return with_steps(args.shape, [&](auto steps, auto exact) {
    return launch(pair_rows_kernel<steps(), exact()>, blocks, stream, args);
  });
}

}  // namespace dynemb::cuda
