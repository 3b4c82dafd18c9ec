// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/grid/initial_rows.cuh: first values of rows, four columns a lane (the meaning: core/row.h).
#pragma once

#include <cstdint>

#include "core/row.h"
#include "cuda/grid/row_format.cuh"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

__device__ __forceinline__ AnyFormat value_format(TableRef const& table) {
  return {table.value_type, moves_vectors(table.values, table.dim)};
}

// What the rows of a table are drawn from. The seed is read once: a field that is read through a
// pointer is read again after every store.
struct RowDrawer {
  Initializer const& initializer;
  RowSeed seed;

  __device__ __forceinline__ RowDrawer(TableRef const& table, Initializer const& initializer)
      : initializer(initializer), seed(row_seed(table)) {}

  // Columns `column` to `column` + 3 of the rows of `keys`, rounded as by a store in `format`.
  template <class Format, int kRows>
  __device__ __forceinline__ void draw(Format format, Key const (&keys)[kRows], int32_t column,
                                       float4 (&rows)[kRows]) const {
    float v[kRows][4];
    initial_values(initializer, seed, keys, static_cast<uint32_t>(column) / 4, v);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      rows[r] = {rounded_to(format.type, v[r][0]), rounded_to(format.type, v[r][1]),
                 rounded_to(format.type, v[r][2]), rounded_to(format.type, v[r][3])};
    }
  }
};

// The mark of unwritten states takes one column, but a sector that is written in part is read
// first.
constexpr int32_t kMarkColumns = 8;

// What the first values of a table's slots depend on, copied from the table once: a field that is
// read through a pointer is read again after every store.
struct SlotFiller {
  AnyFormat format;
  char* values;
  int32_t dim;
  RowSeed seed;
  Initializer initializer;
  bool writes_late;  // the states: core/row.h
  int32_t num_states;
  uint8_t half_states;
  float* states[kMaxStates];
  int32_t width[kMaxStates];
  float first[kMaxStates];

  __device__ __forceinline__ explicit SlotFiller(TableRef const& table)
      : format(value_format(table)),
        values(static_cast<char*>(table.values)),
        dim(table.dim),
        seed(row_seed(table)),
        initializer(table.initializer),
        writes_late(writes_states_late(table)),
        num_states(table.num_states),
        half_states(table.half_states) {
#pragma unroll
    for (int s = 0; s < kMaxStates; ++s) {
      states[s] = table.states[s];
      width[s] = table.state_width[s];
      first[s] = table.state_initial[s];
    }
  }

  // The row of a slot that `key` has just taken.
  __device__ __forceinline__ void fill_row(RowTile const& tile, Key key, int32_t slot) const {
    auto* const row = row_pointer(format, values, slot, dim);
    for (auto c = tile.first_column(); c < dim; c += tile.step()) {
      Key const keys[1] = {key};
      float v[1][4];
      initial_values(initializer, seed, keys, static_cast<uint32_t>(c) / 4, v);
      store_quad(format, row, c, dim, {v[0][0], v[0][1], v[0][2], v[0][3]});
    }
  }

  // Does a state that is written now take a sector at most?
  __device__ __forceinline__ bool fills_sectors() const {
    auto narrow = true;
#pragma unroll
    for (int s = 0; s < kMaxStates; ++s) narrow &= s >= num_states || width[s] <= kMarkColumns;
    return writes_late || narrow;
  }

  __device__ __forceinline__ float mark() const {
    if ((half_states & 1) == 0) return kUnwritten;
    return to_float(BFloat16{kUnwrittenHalf});
  }

  // Fills the optimizer states of such a slot.
  __device__ __forceinline__ void fill_states(RowTile const& tile, int32_t slot) const {
    if (writes_late) return fill_state(tile, 0, slot, mark(), min(width[0], kMarkColumns));
#pragma unroll
    for (int s = 0; s < kMaxStates; ++s) {
      if (s < num_states) fill_state(tile, s, slot, first[s], width[s]);
    }
  }

  // `columns` from the first on.
  __device__ __forceinline__ void fill_state(RowTile const& tile, int s, int32_t slot, float value,
                                             int32_t columns) const {
    auto const half = (half_states >> s & 1) != 0;
    auto const type = half ? ValueType::kBFloat16 : ValueType::kFloat32;
    auto const state_format = AnyFormat{type, moves_vectors(states[s], width[s])};
    auto* const state = row_pointer(state_format, states[s], slot, width[s]);
    for (auto c = tile.first_column(); c < columns; c += tile.step()) {
      store_quad(state_format, state, c, columns, {value, value, value, value});
    }
  }
};

}  // namespace dynemb::cuda
