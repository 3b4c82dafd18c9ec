// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/functor_rows.cuh: the Sink of an update by the struct of any optimizer
// (core/optimizers/): a row takes its step where the sum of its gradients is complete.
//
// Rows, gradients and states are float32, and a row has no more columns than a warp: its tile holds
// all of it in registers, so sums over the row need no second pass. Other rows: any_rows.cuh.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/atomic.h"
#include "core/row.h"
#include "cuda/gradients/functor_step.cuh"
#include "cuda/gradients/sink.cuh"
#include "cuda/grid/row_format.cuh"

namespace dynemb::cuda {

template <class Functor>
struct FunctorRows {
  static constexpr int kWide = Functor::kWide;
  static constexpr int kFirstInt = kWide + Functor::kNumbers;
  static constexpr int kStates = kFirstInt + Functor::kInts;
  static constexpr int kAhead = 2;
  static constexpr int kWarps = kWide > 0 && kStates > 1 ? 24 : 32;  // quads take registers
  static constexpr bool kRowwise = false;
  static constexpr bool kSumsWholeRows = false;
  static constexpr bool kUpdatesRows = true;
  static constexpr bool kChecksRows = true;
  static constexpr bool kTakesOrders = false;

  using Row = SummedRow<kStates>;
  using Columns = AnyColumns<kWide>;

  AnyOptimizer const* optimizers;

  struct Loaded {
    RawQuad row;
    RawQuad wide[2];  // of a row that is not new
    RowNumbers numbers;
  };

  // All lanes load the numbers: a broadcast costs no more than one lane's load.
  template <class Format>
  __device__ __forceinline__ Loaded load(Format format, Row const& row, int32_t column,
                                         bool wanted) const {
    Loaded loaded;
    loaded.row = load_quad_if(wanted, format, row.values, column, row.dim);
#pragma unroll
    for (int s = 0; s < kWide; ++s) {
      auto const* const from = reinterpret_cast<char const*>(row.states.at(s));
      loaded.wide[s] = load_quad_if(wanted && !row.is_new, FloatVectors{}, from, column, row.dim);
    }
#pragma unroll
    for (int s = 0; s < Functor::kNumbers; ++s) {
      loaded.numbers.of[s] = wanted ? *row.states.at(kWide + s) : 0.0f;
    }
#pragma unroll
    for (int s = 0; s < Functor::kInts; ++s) {
      loaded.numbers.ints[s] = wanted ? float_bits(*row.states.at(kFirstInt + s)) : 0;
    }
    return loaded;
  }

  __device__ __forceinline__ bool needs_squares(Row const&) const { return false; }
  __device__ __forceinline__ bool any_needs_squares() const { return false; }
  __device__ __forceinline__ bool looks_ahead() const { return false; }
  __device__ __forceinline__ float learning_rate(int32_t) const { return 0.0f; }
  __device__ __forceinline__ float rate_or_none(Row const&, float, Loaded const&, bool) const {
    return 0.0f;
  }

  __device__ __forceinline__ bool skips(TableRef const& table, bool counts) const {
    if (table.skips_nonfinite == 0) return false;
    if (counts) fetch_add(table.counters + kNonfinite, uint64_t{1});
    return true;
  }

  __device__ __forceinline__ float mark(int32_t, TableRef const& table, int32_t slot) const {
    return kWide > 0 && writes_states_late(table) ? *state_at(table, 0, slot) : 0.0f;
  }

  // All lanes of the tile call this.
  template <class Format>
  __device__ __forceinline__ void update(RowTile const& tile, Format format, Row const& row,
                                         int32_t column, Loaded const& loaded,
                                         float4 const& sum) const {
    // The whole struct at once: read number by number, each branch would wait for its own load.
    auto const optimizer = optimizers[row.table_index];
    auto const functor = optimizer.template as<Functor>();
    auto const has_columns = column < row.dim;
    Columns own{};
    if (has_columns) own = columns_of(format, row, loaded, sum);
    clip(tile, optimizer, own);
    auto numbers = loaded.numbers;
    if (row.is_new) numbers = first_numbers<Functor>(row.table.state_initial);
    RowFactors factors{};
    functor.begin(numbers, factors);
    auto const stages = functor.stages();
    if (stages > 0 && !run_stage<0>(functor, tile, row, own, numbers, factors)) return;
    if (stages > 1 && !run_stage<1>(functor, tile, row, own, numbers, factors)) return;
    update_columns(functor, factors, own);
    if (has_columns) store(format, row, column, own);
    if constexpr (Functor::kNumbers + Functor::kInts > 0) {
      __syncwarp(tile.mask());  // every lane has loaded the numbers before one writes them
      if (tile.rank == 0) store_numbers(row, numbers);
    }
  }

 private:
  template <class Format>
  __device__ __forceinline__ Columns columns_of(Format format, Row const& row, Loaded const& loaded,
                                                float4 const& sum) const {
    Columns columns;
    auto const w = to_floats(format, loaded.row);
    columns.w[0] = w.x, columns.w[1] = w.y, columns.w[2] = w.z, columns.w[3] = w.w;
    columns.g[0] = sum.x, columns.g[1] = sum.y, columns.g[2] = sum.z, columns.g[3] = sum.w;
#pragma unroll
    for (int s = 0; s < kWide; ++s) {
      auto v = to_floats(FloatVectors{}, loaded.wide[s]);
      if (row.is_new) v.x = v.y = v.z = v.w = row.table.state_initial[s];
      columns.wide[0][s] = v.x, columns.wide[1][s] = v.y;
      columns.wide[2][s] = v.z, columns.wide[3][s] = v.w;
    }
    return columns;
  }

  // Bounds each column of the gradient, then its norm.
  __device__ __forceinline__ void clip(RowTile const& tile, AnyOptimizer const& optimizer,
                                       Columns& own) const {
    if (optimizer.clip_value > 0.0f) {
#pragma unroll
      for (auto& g : own.g) g = clipped(g, optimizer.clip_value);
    }
    if (!(optimizer.clip_norm > 0.0f)) return;
    auto const squares = square_of({own.g[0], own.g[1], own.g[2], own.g[3]});
    auto const factor = norm_factor(sum_of_tile(tile, squares), optimizer.clip_norm);
#pragma unroll
    for (auto& g : own.g) g *= factor;
  }

  template <int k>
  __device__ __forceinline__ bool run_stage(Functor const& functor, RowTile const& tile,
                                            Row const& row, Columns const& own, RowNumbers& numbers,
                                            RowFactors& factors) const {
    RowSums2 sums{0.0f, 0.0f};
    add_columns<k>(functor, factors, own, sums);
    auto const skips_nonfinite = row.table.skips_nonfinite != 0;
    if (finish_stage<k>(functor, tile, row.dim, skips_nonfinite, sums, numbers, factors)) {
      return true;
    }
    skips(row.table, tile.rank == 0);
    return false;
  }

  template <class Format>
  __device__ __forceinline__ void store(Format format, Row const& row, int32_t column,
                                        Columns const& c) const {
    store_quad(format, row.values, column, row.dim, {c.w[0], c.w[1], c.w[2], c.w[3]});
#pragma unroll
    for (int s = 0; s < kWide; ++s) {
      store_quad(FloatVectors{}, reinterpret_cast<char*>(row.states.at(s)), column, row.dim,
                 {c.wide[0][s], c.wide[1][s], c.wide[2][s], c.wide[3][s]});
    }
  }

  __device__ __forceinline__ void store_numbers(Row const& row, RowNumbers const& numbers) const {
#pragma unroll
    for (int s = 0; s < Functor::kNumbers; ++s) *row.states.at(kWide + s) = numbers.of[s];
#pragma unroll
    for (int s = 0; s < Functor::kInts; ++s) {
      *row.states.at(kFirstInt + s) = float_from_bits(numbers.ints[s]);
    }
  }
};

}  // namespace dynemb::cuda
