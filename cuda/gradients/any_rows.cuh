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
#include "core/slot.h"
#include "cuda/gradients/functor_step.cuh"
#include "cuda/gradients/sink.cuh"
#include "cuda/grid/host.h"
#include "cuda/grid/rounding.cuh"
#include "cuda/grid/row_format.cuh"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

// A table, and the rows of it that a batch touches.
struct AnyTable {
  void* values;
  float* states[kMaxStates];  // or of bfloat16, see TableRef::half_states
  float state_initial[kMaxStates];
  uint64_t* counters;
  // Of the keys by which rows are rounded: one of them, or none, to nearest.
  uint8_t* index;
  Key const* row_keys;
  int32_t const* slots;  // [capacity], -1 = none
  float const* sums;     // [capacity, dim]
  AnyOptimizer const* optimizer;
  int64_t capacity;
  int64_t first_block;  // of the grid
  int32_t dim;
  ValueType value_type;
  uint8_t half_states;
  bool skips_nonfinite;
  ScorePolicy policy;  // of the index
};

// Holds the tables of one optimizer.
struct AnyCall {
  int32_t num_tables;
  AnyTable tables[kMaxTables];
};

// Four columns of a row as they were loaded: nothing has waited for them yet.
struct RawColumns {
  RawQuad w, g, wide[2];
};

template <class Functor, class Format>
class AnyRow {
 public:
  using Columns = AnyColumns<Functor::kWide>;

  __device__ __forceinline__ AnyRow(Functor const& functor, AnyTable const& table, Format format,
                                    RowTile const& tile, int64_t place, int32_t slot)
      : functor_(functor),
        table_(table),
        format_(format),
        tile_(tile),
        slot_(slot),
        values_(row_pointer(format, table.values, slot, table.dim)),
        sums_(reinterpret_cast<char const*>(table.sums + place * table.dim)),
        in_registers_(table.dim <= tile.step()) {}

  // Brings what update() will load into the L2 cache. A wider row reads itself several times, and
  // waits for the memory the first time only.
  __device__ __forceinline__ void prefetch() const {
    auto const column = tile_.first_column();
    if (!in_registers_ || column >= table_.dim) return;
    prefetch_columns(format_, values_, column);
    prefetch_columns(sum_format(), sums_, column);
#pragma unroll
    for (int s = 0; s < Functor::kWide; ++s) {
      prefetch_columns(wide_format(s), wide_row(s), column);
    }
    if (tile_.rank != 0) return;
#pragma unroll
    for (int s = Functor::kWide; s < kNumStates; ++s) prefetch_line(number(s));
  }

  // All lanes of the tile call this. All that a row of one step needs is on its way before anything
  // is looked at: what is loaded behind a test would make the row wait for the memory once more.
  __device__ __forceinline__ void update() {
    auto const has_columns = in_registers_ && tile_.first_column() < table_.dim;
    RawColumns raw{};
    if (has_columns) raw = load(tile_.first_column());
    if (rounds()) key_ = key_of_slot();
    auto const late = Functor::kWide > 0 && table_.dim > 1;
    auto const mark = late ? load_mark() : 0.0f;
    auto numbers = load_numbers();
    is_new_ = late && mark == unwritten_mark();
    if (is_new_) numbers = first_numbers<Functor>(table_.state_initial);
    __syncwarp(tile_.mask());  // every lane has the mark and the numbers before one is written
    Columns own{};
    if (has_columns) own = columns_of(raw, tile_.first_column());
    if (!prepare_gradient(own)) return skip();
    RowFactors factors{};
    functor_.begin(numbers, factors);
    auto const stages = functor_.stages();
    if (stages > 0 && !run_stage<0>(own, numbers, factors)) return skip();
    if (stages > 1 && !run_stage<1>(own, numbers, factors)) return skip();
    for_columns(own, [&](Columns& columns, int32_t column) {
      update_columns(functor_, factors, columns);
      if (column < table_.dim) store(columns, column);
    });
    if (tile_.rank != 0) return;
#pragma unroll
    for (int s = 0; s < Functor::kNumbers; ++s) *number(Functor::kWide + s) = numbers.of[s];
#pragma unroll
    for (int s = 0; s < Functor::kInts; ++s) {
      *number(kFirstInt + s) = float_from_bits(numbers.ints[s]);
    }
  }

 private:
  static constexpr int kFirstInt = Functor::kWide + Functor::kNumbers;
  static constexpr int kNumStates = kFirstInt + Functor::kInts;

  template <class Stored>
  __device__ __forceinline__ static void prefetch_columns(Stored format, char const* row,
                                                          int32_t column) {
    prefetch_line(row + column * element_bytes(format));
  }

  __device__ __forceinline__ float* number(int s) const { return table_.states[s] + slot_; }

  __device__ __forceinline__ bool is_half(int s) const {
    return (table_.half_states >> s & 1) != 0;
  }

  __device__ __forceinline__ AnyFormat wide_format(int s) const {
    auto const type = is_half(s) ? ValueType::kBFloat16 : ValueType::kFloat32;
    return {type, moves_vectors(table_.states[s], table_.dim)};
  }

  __device__ __forceinline__ char* wide_row(int s) const {
    return row_pointer(wide_format(s), table_.states[s], slot_, table_.dim);
  }

  __device__ __forceinline__ AnyFormat sum_format() const {
    return {ValueType::kFloat32, moves_vectors(sums_, table_.dim)};
  }

  __device__ __forceinline__ float unwritten_mark() const {
    return is_half(0) ? to_float(BFloat16{kUnwrittenHalf}) : kUnwritten;
  }

  __device__ __forceinline__ float load_mark() const {
    auto const* const row = wide_row(0);
    if (is_half(0)) return to_float(*reinterpret_cast<BFloat16 const*>(row));
    return *reinterpret_cast<float const*>(row);
  }

  __device__ __forceinline__ bool rounds() const {
    return table_.index != nullptr || table_.row_keys != nullptr;
  }

  __device__ __forceinline__ Key key_of_slot() const {
    TableRef table{};
    table.index = table_.index;
    if (table_.index == nullptr) table.row_keys = table_.row_keys;
    table.policy = table_.policy;
    return *rounding_key_at(table, slot_);
  }

  __device__ __forceinline__ RowNumbers load_numbers() const {
    RowNumbers numbers{};
#pragma unroll
    for (int s = 0; s < Functor::kNumbers; ++s) numbers.of[s] = *number(Functor::kWide + s);
#pragma unroll
    for (int s = 0; s < Functor::kInts; ++s) numbers.ints[s] = float_bits(*number(kFirstInt + s));
    return numbers;
  }

  __device__ __forceinline__ RawColumns load(int32_t column) const {
    RawColumns raw;
    raw.w = load_quad(format_, values_, column, table_.dim);
    raw.g = load_quad(sum_format(), sums_, column, table_.dim);
#pragma unroll
    for (int s = 0; s < Functor::kWide; ++s) {
      raw.wide[s] = load_quad(wide_format(s), wide_row(s), column, table_.dim);
    }
    return raw;
  }

  // With the gradient as it is: use_gradient() clips it.
  __device__ __forceinline__ Columns columns_of(RawColumns const& raw, int32_t column) const {
    Columns columns{};
    auto const w = to_floats(format_, raw.w), g = to_floats(sum_format(), raw.g);
    columns.w[0] = w.x, columns.w[1] = w.y, columns.w[2] = w.z, columns.w[3] = w.w;
    columns.g[0] = g.x, columns.g[1] = g.y, columns.g[2] = g.z, columns.g[3] = g.w;
#pragma unroll
    for (int s = 0; s < Functor::kWide; ++s) {
      auto v = to_floats(wide_format(s), raw.wide[s]);
      if (is_new_) v.x = v.y = v.z = v.w = table_.state_initial[s];
      columns.wide[0][s] = v.x;
      columns.wide[1][s] = column + 1 < table_.dim ? v.y : 0.0f;
      columns.wide[2][s] = column + 2 < table_.dim ? v.z : 0.0f;
      columns.wide[3][s] = column + 3 < table_.dim ? v.w : 0.0f;
    }
    return columns;
  }

  __device__ __forceinline__ void use_gradient(Columns& columns) const {
#pragma unroll
    for (auto& g : columns.g) g = clipped(g, table_.optimizer->clip_value) * factor_;
  }

  __device__ __forceinline__ void store(Columns const& c, int32_t column) const {
    auto const w = float4{c.w[0], c.w[1], c.w[2], c.w[3]};
    store_rounded(format_, values_, 0, column, w);
#pragma unroll
    for (int s = 0; s < Functor::kWide; ++s) {
      auto const v = float4{c.wide[0][s], c.wide[1][s], c.wide[2][s], c.wide[3][s]};
      store_rounded(wide_format(s), wide_row(s), 1 + s, column, v);
    }
  }

  // `array`: see RoundingSeed.
  template <class Stored>
  __device__ __forceinline__ void store_rounded(Stored format, char* row, uint32_t array,
                                                int32_t column, float4 v) const {
    if (format.type != ValueType::kFloat32 && rounds()) {
      auto seed = rounding_seed(table_.counters);
      seed.array = array;
      v = rounded_quad(seed, key_, static_cast<uint32_t>(column) / 4, format.type, v);
    }
    store_quad(format, row, column, table_.dim, v);
  }

  // Calls body(columns, column) for the columns of this lane; of a row in registers once, also past
  // its end.
  template <class Body>
  __device__ __forceinline__ void for_columns(Columns& own, Body const& body) const {
    if (in_registers_) return body(own, tile_.first_column());
#pragma unroll 1
    for (auto column = tile_.first_column(); column < table_.dim; column += tile_.step()) {
      auto columns = columns_of(load(column), column);
      use_gradient(columns);
      body(columns, column);
    }
  }

  // What is known of the gradient of a whole row.
  struct GradientSums {
    bool finite;
    float squares;  // after each column is clipped

    __device__ __forceinline__ void add(float const (&g)[4], float limit) {
#pragma unroll
      for (auto const value : g) {
        finite = finite && is_finite(value);
        auto const x = clipped(value, limit);
        squares += x * x;
      }
    }
  };

  // Whether the gradient may be used; clips it, of a row in registers.
  __device__ __forceinline__ bool prepare_gradient(Columns& own) {
    auto const& optimizer = *table_.optimizer;
    auto const by_norm = optimizer.clip_norm > 0.0f;
    GradientSums sums{true, 0.0f};
    if (in_registers_) {
      sums.add(own.g, optimizer.clip_value);
    } else if (table_.skips_nonfinite || by_norm) {
#pragma unroll 1
      for (auto column = tile_.first_column(); column < table_.dim; column += tile_.step()) {
        auto const v = to_floats(sum_format(), load_quad(sum_format(), sums_, column, table_.dim));
        float const g[4] = {v.x, v.y, v.z, v.w};
        sums.add(g, optimizer.clip_value);
      }
    }
    if (table_.skips_nonfinite && !all_of_tile(tile_, sums.finite)) return false;
    if (by_norm) factor_ = norm_factor(sum_of_tile(tile_, sums.squares), optimizer.clip_norm);
    if (in_registers_) use_gradient(own);
    return true;
  }

  template <int k>
  __device__ __forceinline__ bool run_stage(Columns& own, RowNumbers& numbers,
                                            RowFactors& factors) const {
    RowSums2 sums{0.0f, 0.0f};
    for_columns(own, [&](Columns const& columns, int32_t) {
      add_columns<k>(functor_, factors, columns, sums);
    });
    return finish_stage<k>(functor_, tile_, table_.dim, table_.skips_nonfinite, sums, numbers,
                           factors);
  }

  __device__ __forceinline__ void skip() const {
    if (tile_.rank == 0) fetch_add(table_.counters + kNonfinite, uint64_t{1});
  }

  Functor const& functor_;
  AnyTable const& table_;
  Format format_;
  RowTile const& tile_;
  int32_t slot_;
  char* values_;
  char const* sums_;
  bool in_registers_;
  bool is_new_ = false;  // its states are not written yet (core/row.h)
  float factor_ = 1.0f;
  Key key_ = kEmptyKey;  // where it rounds
};

// Rows of a block: each tile has some, one after the other.
constexpr int kRowsOfTile = 4;

__host__ __device__ __forceinline__ int64_t any_rows_of_block(int32_t dim) {
  return int64_t{kThreads / lanes_of_row(dim)} * kRowsOfTile;
}

template <class Functor, class Format>
__device__ __forceinline__ void update_any_rows(AnyTable const& table, Format format) {
  auto const functor = table.optimizer->template as<Functor>();
  auto const tile = RowTile(lanes_of_row(table.dim));
  auto const tiles = int64_t{kThreads / tile.lanes};
  auto const mine = static_cast<int64_t>(threadIdx.x) / tile.lanes;
  auto const first = (int64_t{blockIdx.x} - table.first_block) * tiles * kRowsOfTile + mine;
  // All of them first: most places of a batch with duplicates have no row.
  int32_t slots[kRowsOfTile];
#pragma unroll
  for (int r = 0; r < kRowsOfTile; ++r) {
    auto const place = first + r * tiles;
    slots[r] = place < table.capacity ? table.slots[place] : kPaddingSlot;
  }
  // Else a row would be loaded only after the one before it is stored. Registers hold one row.
#pragma unroll
  for (int r = 1; r < kRowsOfTile; ++r) {
    if (slots[r] < 0) continue;
    AnyRow<Functor, Format>(functor, table, format, tile, first + r * tiles, slots[r]).prefetch();
  }
#pragma unroll 1
  for (int r = 0; r < kRowsOfTile; ++r) {
    auto const slot = slots[0];
#pragma unroll
    for (int i = 1; i < kRowsOfTile; ++i) slots[i - 1] = slots[i];  // no index at run time
    if (slot < 0) continue;
    AnyRow<Functor, Format>(functor, table, format, tile, first + r * tiles, slot).update();
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

// One for each optimizer: together they would all have the registers of the one that needs most.
template <class Functor, class Formats>
__global__ void __launch_bounds__(kThreads) any_rows_kernel(__grid_constant__ AnyCall const call) {
  int32_t t = 0;
  while (t + 1 < call.num_tables && call.tables[t + 1].first_block <= int64_t{blockIdx.x}) ++t;
  auto const& table = call.tables[t];
  update_any_rows<Functor>(table, any_format<Formats>(table));
}

}  // namespace dynemb::cuda
