// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tensor_train/prefix_gradients.cuh: the gradient of each prefix: a warp sums over its rows in
// registers.
#pragma once

#include "cuda/grid/host.h"
#include "cuda/tensor_train/pair_columns.cuh"
#include "cuda/tensor_train/row_octets.cuh"
#include "cuda/tensor_train/tile_product.cuh"

namespace dynemb::cuda {

// Where a lane reads gradients of rows and suffixes of one column; null: zeros.
struct GradientColumn {
  float const* gradients = nullptr;
  float const* suffix = nullptr;

  // `d_rows` are of the chunk. All lanes are here.
  __device__ __forceinline__ GradientColumn(PairGradientsOf<float> const& args,
                                            PairChunk const& chunk, float const* d_rows,
                                            uint32_t column) {
    auto const& shape = args.shape;
    auto const place = chunk.at(column);
    auto const number = chunk.suffix_of(place);
    if (column >= chunk.count() || number < 0) return;
    suffix = args.suffix + int64_t{number} * (shape.k * shape.n) + place.n;
    gradients = d_rows + int64_t{place.row} * (shape.m * shape.n) + place.n;
  }
};

template <int kSteps, bool kExact>
__device__ __forceinline__ void add_columns(PairGradientsOf<float> const& args,
                                            GradientColumn const (&columns)[2], int32_t m0,
                                            int32_t k0, float (&sums)[kSteps][4]) {
  auto const& shape = args.shape;
  LeftTile<kExact> gradients;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    auto const* const column = columns[i / 2].gradients;
    auto const m = m0 + left_row(i);
    gradients.set(i, column != nullptr && m < shape.m ? load_once(column + m * shape.n) : 0.0f);
  }
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    RightTile<kExact> suffixes;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      auto const* const column = columns[i].suffix;
      auto const k = k0 + s * 8 + right_column();
      suffixes.set(i, column != nullptr && k < shape.k ? __ldg(column + k * shape.n) : 0.0f);
    }
    if constexpr (kExact) {  // tensor cores truncate sums: over many rows that is a bias
      float part[4] = {};
      add_product<kExact>(part, gradients, suffixes);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[s][i] += part[i];
    } else {
      add_product<kExact>(sums[s], gradients, suffixes);
    }
  }
}

template <int kSteps>
__device__ __forceinline__ void store_gradient(PairShape const& shape, float* out, int32_t m0,
                                               int32_t k0, float const (&sums)[kSteps][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    auto const m = m0 + sum_row(2 * half);
    if (m >= shape.m) continue;
    auto* const row = out + prefix_row_offset(shape, m);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      auto const k = k0 + s * 8 + sum_column(0);
      if (shape.k % 2 == 0) {
        if (k >= shape.k) continue;
        *reinterpret_cast<float2*>(row + k) = {sums[s][2 * half], sums[s][2 * half + 1]};
      } else {
        if (k < shape.k) row[k] = sums[s][2 * half];
        if (k + 1 < shape.k) row[k + 1] = sums[s][2 * half + 1];
      }
    }
  }
}

template <int kSteps, bool kExact>
__global__ void __launch_bounds__(kThreads)
    prefix_gradients_kernel(__grid_constant__ PairGradientsOf<float> const args) {
  auto const& shape = args.shape;
  auto const warps = int64_t{gridDim.x} * kWarpsPerBlock;
  for (auto prefix = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / 32;
       prefix < shape.num_prefixes; prefix += warps) {
    auto const rows = rows_of_prefix(shape, prefix);
    auto* const out = args.d_prefix + prefix_offset(shape, prefix);
    for (int32_t m0 = 0; m0 < shape.m; m0 += kTileRows) {
      for (int32_t k0 = 0; k0 < shape.k; k0 += kSteps * 8) {
        float sums[kSteps][4] = {};
        for (auto begin = rows.begin; begin < rows.end; begin += 32) {
          PairChunk const chunk(shape, begin, rows.end);
          auto const* const d_rows = args.d_rows + begin * (shape.m * shape.n);
#pragma unroll 2
          for (uint32_t first = 0; first < chunk.count(); first += kTileColumns) {
            auto const column = first + static_cast<uint32_t>(left_column(0));
            GradientColumn const columns[2] = {{args, chunk, d_rows, column},
                                               {args, chunk, d_rows, column + 4}};
            add_columns<kSteps, kExact>(args, columns, m0, k0, sums);
          }
        }
        store_gradient(shape, out, m0, k0, sums);
      }
    }
  }
}

inline cudaError_t prefix_gradients(PairGradientsOf<float> const& args, cudaStream_t stream) {
  auto const& shape = args.shape;
  if (shape.num_prefixes == 0) return cudaSuccess;
  if (shape.num_suffixes > 0 && has_octets(shape)) return octet_gradients(args, stream);
  auto const blocks = blocks_of_prefixes(shape, kWarpsPerBlock);
  return with_steps(shape.k, shape.exact != 0, [&](auto steps, auto exact) {
    return launch(prefix_gradients_kernel<steps(), exact()>, blocks, stream, args);
  });
}

}  // namespace dynemb::cuda
