// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/any_rows.cuh: rows take one step of any optimizer (core/optimizers/), from the
// sums of their gradients.
//
// A tile of lanes has a row. Up to 128 columns it holds the row, its gradient and its states in
// registers, and reads each of them once. A wider row is read again for every sum that its
// optimizer needs. The order of a sum counts from the row's own first column.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/finite.h"
#include "core/optimizers/list.h"
#include "core/row.h"
#include "cuda/gradients/sink.cuh"
#include "cuda/grid/host.h"
#include "cuda/grid/rounding.cuh"
#include "cuda/grid/row_format.cuh"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

// A table, and the rows of it that a batch touches.
struct AnyTable {
  void* values;
  float* states[kMaxStates];
  float state_initial[kMaxStates];
  uint64_t* counters;
  uint8_t* index;        // of the keys by which rows are rounded, or null: to nearest
  int32_t const* slots;  // [capacity], -1 = none
  float const* sums;     // [capacity, dim]
  int64_t capacity;
  int64_t first_block;  // of the grid
  int32_t dim;
  ValueType value_type;
  OptimizerKind kind;
  bool skips_nonfinite;
};

struct AnyCall {
  int32_t num_tables;
  AnyOptimizer const* optimizers;  // [num_tables]
  AnyTable tables[kMaxTables];
};

// Four columns of a row. Those past its end are zeros, and add nothing to a sum.
template <int kWide>
struct AnyColumns {
  float w[4], g[4];
  float wide[4][2];
};

template <class Functor, class Format>
class AnyRow {
 public:
  using Columns = AnyColumns<Functor::kWide>;

  __device__ __forceinline__ AnyRow(Functor const& functor, AnyOptimizer const& optimizer,
                                    AnyTable const& table, Format format, RowTile const& tile,
                                    int64_t place, int32_t slot)
      : functor_(functor),
        optimizer_(optimizer),
        table_(table),
        format_(format),
        tile_(tile),
        slot_(slot),
        values_(row_pointer(format, table.values, slot, table.dim)),
        sums_(reinterpret_cast<char const*>(table.sums + place * table.dim)),
        in_registers_(table.dim <= tile.step()) {}

  // By all lanes of the tile.
  __device__ __forceinline__ void update() {
    auto const is_new = Functor::kWide > 0 && table_.dim > 1 && *state(0) == kUnwritten;
    auto numbers = load_numbers(is_new);
    __syncwarp(tile_.mask());  // every lane has the mark and the numbers before one is written
    if (!prepare_gradient()) return skip();
    Columns own{};
    if (in_registers_ && tile_.first_column() < table_.dim)
      own = load(is_new, tile_.first_column());
    RowFactors factors{};
    functor_.begin(numbers, factors);
    auto const stages = functor_.stages();
    if (stages > 0 && !run_stage<0>(own, is_new, numbers, factors)) return skip();
    if (stages > 1 && !run_stage<1>(own, is_new, numbers, factors)) return skip();
    for_columns(own, is_new, [&](Columns& columns, int32_t column) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        columns.w[i] = functor_.update(factors, columns.w[i], columns.g[i], columns.wide[i]);
      }
      if (column < table_.dim) store(columns, column);
    });
    if (tile_.rank != 0) return;
#pragma unroll
    for (int s = 0; s < Functor::kNumbers; ++s) *state(Functor::kWide + s) = numbers.of[s];
#pragma unroll
    for (int s = 0; s < Functor::kInts; ++s)
      *state(kFirstInt + s) = float_from_bits(numbers.ints[s]);
  }

 private:
  static constexpr int kFirstInt = Functor::kWide + Functor::kNumbers;

  __device__ __forceinline__ float* state(int s) const {
    return table_.states[s] + int64_t{slot_} * (s < Functor::kWide ? table_.dim : 1);
  }

  __device__ __forceinline__ AnyFormat float_format(void const* rows) const {
    return {ValueType::kFloat32, moves_vectors(rows, table_.dim)};
  }

  __device__ __forceinline__ RowNumbers load_numbers(bool is_new) const {
    RowNumbers numbers{};
#pragma unroll
    for (int s = 0; s < Functor::kNumbers; ++s) {
      auto const place = Functor::kWide + s;
      numbers.of[s] = is_new ? table_.state_initial[place] : *state(place);
    }
#pragma unroll
    for (int s = 0; s < Functor::kInts; ++s) {
      auto const place = kFirstInt + s;
      numbers.ints[s] = float_bits(is_new ? table_.state_initial[place] : *state(place));
    }
    return numbers;
  }

  __device__ __forceinline__ float4 load_floats(char const* row, int32_t column) const {
    auto const format = float_format(row);
    return to_floats(format, load_quad(format, row, column, table_.dim));
  }

  __device__ __forceinline__ void load_gradient(int32_t column, float (&g)[4]) const {
    auto const v = load_floats(sums_, column);
    g[0] = v.x, g[1] = v.y, g[2] = v.z, g[3] = v.w;
  }

  __device__ __forceinline__ Columns load(bool is_new, int32_t column) const {
    Columns columns{};
    auto const w = to_floats(format_, load_quad(format_, values_, column, table_.dim));
    columns.w[0] = w.x, columns.w[1] = w.y, columns.w[2] = w.z, columns.w[3] = w.w;
    load_gradient(column, columns.g);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      columns.g[i] = clipped(columns.g[i], optimizer_.clip_value) * factor_;
    }
#pragma unroll
    for (int s = 0; s < Functor::kWide; ++s) {
      auto const initial = table_.state_initial[s];
      float4 v{initial, initial, initial, initial};
      if (!is_new) v = load_floats(reinterpret_cast<char const*>(state(s)), column);
      columns.wide[0][s] = v.x;
      columns.wide[1][s] = column + 1 < table_.dim ? v.y : 0.0f;
      columns.wide[2][s] = column + 2 < table_.dim ? v.z : 0.0f;
      columns.wide[3][s] = column + 3 < table_.dim ? v.w : 0.0f;
    }
    return columns;
  }

  __device__ __forceinline__ void store(Columns const& c, int32_t column) const {
    auto w = float4{c.w[0], c.w[1], c.w[2], c.w[3]};
    if (format_.type != ValueType::kFloat32 && table_.index != nullptr) w = rounded(w, column);
    store_quad(format_, values_, column, table_.dim, w);
#pragma unroll
    for (int s = 0; s < Functor::kWide; ++s) {
      auto* const row = reinterpret_cast<char*>(state(s));
      auto const v = float4{c.wide[0][s], c.wide[1][s], c.wide[2][s], c.wide[3][s]};
      store_quad(float_format(row), row, column, table_.dim, v);
    }
  }

  __device__ __forceinline__ float4 rounded(float4 const& w, int32_t column) const {
    TableRef table{};
    table.index = table_.index;
    auto const seed = rounding_seed(table_.counters);
    auto const quad = static_cast<uint32_t>(column) / 4;
    return rounded_quad(seed, *key_at(table, slot_), quad, format_.type, w);
  }

  // Calls body(columns, column) for the columns of this lane; of a row in registers once, also past
  // its end.
  template <class Body>
  __device__ __forceinline__ void for_columns(Columns& own, bool is_new, Body const& body) const {
    if (in_registers_) return body(own, tile_.first_column());
#pragma unroll 1
    for (auto column = tile_.first_column(); column < table_.dim; column += tile_.step()) {
      auto columns = load(is_new, column);
      body(columns, column);
    }
  }

  // Whether the gradient may be used; finds the factor that clips its norm.
  __device__ __forceinline__ bool prepare_gradient() {
    auto const by_norm = optimizer_.clip_norm > 0.0f;
    if (!table_.skips_nonfinite && !by_norm) return true;
    auto finite = true;
    auto squares = 0.0f;
#pragma unroll 1
    for (auto column = tile_.first_column(); column < table_.dim; column += tile_.step()) {
      float g[4];
      load_gradient(column, g);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        finite = finite && is_finite(g[i]);
        auto const x = clipped(g[i], optimizer_.clip_value);
        squares += x * x;
      }
    }
    if (table_.skips_nonfinite && !all_of_tile(tile_, finite)) return false;
    if (by_norm) factor_ = norm_factor(sum_of_tile(tile_, squares), optimizer_.clip_norm);
    return true;
  }

  template <int k>
  __device__ __forceinline__ bool run_stage(Columns& own, bool is_new, RowNumbers& numbers,
                                            RowFactors& factors) const {
    RowSums2 sums{0.0f, 0.0f};
    for_columns(own, is_new, [&](Columns const& columns, int32_t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        functor_.template add<k>(factors, columns.w[i], columns.g[i], columns.wide[i], sums);
      }
    });
    sums = {sum_of_tile(tile_, sums.a), sum_of_tile(tile_, sums.b)};
    if (table_.skips_nonfinite && !(is_finite(sums.a) && is_finite(sums.b))) return false;
    functor_.template finish<k>(sums, static_cast<float>(table_.dim), numbers, factors);
    return true;
  }

  __device__ __forceinline__ void skip() const {
    if (tile_.rank == 0) fetch_add(table_.counters + kNonfinite, uint64_t{1});
  }

  Functor const& functor_;
  AnyOptimizer const& optimizer_;
  AnyTable const& table_;
  Format format_;
  RowTile const& tile_;
  int32_t slot_;
  char* values_;
  char const* sums_;
  bool in_registers_;
  float factor_ = 1.0f;
};

// Rows of a block: each tile has some, one after the other.
constexpr int kRowsOfTile = 4;

__host__ __device__ __forceinline__ int64_t any_rows_of_block(int32_t dim) {
  return int64_t{kThreads / lanes_of_row(dim)} * kRowsOfTile;
}

template <class Functor, class Format>
__device__ __forceinline__ void update_any_rows(AnyOptimizer const& optimizer,
                                                AnyTable const& table, Format format) {
  auto const functor = optimizer.template as<Functor>();
  auto const tile = RowTile(lanes_of_row(table.dim));
  auto const tiles = int64_t{kThreads / tile.lanes};
  auto const mine = static_cast<int64_t>(threadIdx.x) / tile.lanes;
  auto const first = (int64_t{blockIdx.x} - table.first_block) * tiles * kRowsOfTile + mine;
#pragma unroll 1
  for (int r = 0; r < kRowsOfTile; ++r) {
    auto const place = first + r * tiles;
    if (place >= table.capacity) return;
    auto const slot = table.slots[place];
    if (slot < 0) continue;
    AnyRow<Functor, Format>(functor, optimizer, table, format, tile, place, slot).update();
  }
}

template <class Formats>
__device__ __forceinline__ auto any_format(AnyTable const& table) {
  if constexpr (Formats::kKnown) {
    return typename Formats::Stored{};
  } else {
    return AnyFormat{table.value_type, moves_vectors(table.values, table.dim)};
  }
}

template <class Formats>
__global__ void __launch_bounds__(kThreads) any_rows_kernel(__grid_constant__ AnyCall const call) {
  int32_t t = 0;
  while (t + 1 < call.num_tables && call.tables[t + 1].first_block <= int64_t{blockIdx.x}) ++t;
  auto const& table = call.tables[t];
  auto const& optimizer = call.optimizers[t];
  auto const format = any_format<Formats>(table);
  switch (table.kind) {
#define DYNEMB_CASE(Name)      \
  case OptimizerKind::k##Name: \
    return update_any_rows<Name>(optimizer, table, format);
    DYNEMB_FOR_EACH_OPTIMIZER(DYNEMB_CASE)
#undef DYNEMB_CASE
    default:
      return;
  }
}

}  // namespace dynemb::cuda
