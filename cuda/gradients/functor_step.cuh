// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/functor_step.cuh: what the struct of an optimizer (core/optimizers/) does with
// four columns of a row, and with the sums over all of them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/finite.h"
#include "core/optimizers/list.h"
#include "cuda/gradients/sink.cuh"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

// Holds four columns of a row. Those past its end are zeros, and add nothing to a sum.
template <int kWide>
struct AnyColumns {
  float w[4], g[4];
  float wide[4][2];
};

// The first values of a row's numbers: `initial` has those of its wide states first.
template <class Functor>
__device__ __forceinline__ RowNumbers first_numbers(float const* initial) {
  RowNumbers numbers{};
  constexpr int kFirstInt = Functor::kWide + Functor::kNumbers;
#pragma unroll
  for (int s = 0; s < Functor::kNumbers; ++s) numbers.of[s] = initial[Functor::kWide + s];
#pragma unroll
  for (int s = 0; s < Functor::kInts; ++s) numbers.ints[s] = float_bits(initial[kFirstInt + s]);
  return numbers;
}

template <int k, class Functor>
__device__ __forceinline__ void add_columns(Functor const& functor, RowFactors const& factors,
                                            AnyColumns<Functor::kWide> const& columns,
                                            RowSums2& sums) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    functor.template add<k>(factors, columns.w[i], columns.g[i], columns.wide[i], sums);
  }
}

// Returns the sums of all lanes of a tile. Two are exchanged side by side: one after the other
// would take twice the time of a chain of exchanges.
template <int kSums>
__device__ __forceinline__ RowSums2 sums_of_tile(RowTile const& tile, RowSums2 sums) {
  if constexpr (kSums == 1) return {sum_of_tile(tile, sums.a), 0.0f};
  if (tile.lanes < 32) return {sum_of_tile(tile, sums.a), sum_of_tile(tile, sums.b)};
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    auto const a = __shfl_xor_sync(kFullWarp, sums.a, distance);
    auto const b = __shfl_xor_sync(kFullWarp, sums.b, distance);
    sums.a += a;
    sums.b += b;
  }
  return sums;
}

// All lanes of a tile call this, each with the sums of its own columns. It returns whether the row
// may be updated.
template <int k, class Functor>
__device__ __forceinline__ bool finish_stage(Functor const& functor, RowTile const& tile,
                                             int32_t dim, bool skips_nonfinite, RowSums2 sums,
                                             RowNumbers& numbers, RowFactors& factors) {
  sums = sums_of_tile<Functor::kSums>(tile, sums);
  if (skips_nonfinite && !(is_finite(sums.a) && is_finite(sums.b))) return false;
  functor.template finish<k>(sums, static_cast<float>(dim), numbers, factors);
  return true;
}

template <class Functor>
__device__ __forceinline__ void update_columns(Functor const& functor, RowFactors const& factors,
                                               AnyColumns<Functor::kWide>& columns) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    columns.w[i] = functor.update(factors, columns.w[i], columns.g[i], columns.wide[i]);
  }
}

}  // namespace dynemb::cuda
