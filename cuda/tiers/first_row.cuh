// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/first_row.cuh: the first values of a row that lies nowhere yet, and of its states.
#pragma once

#include "core/row.h"
#include "cuda/grid/initial_rows.cuh"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

// Says where a first row and its states go.
struct FirstRow {
  void* row;
  bool vectors;  // whether four columns of the row may be written at once
  float* states[kMaxStates];
};

// The lanes of a tile call this.
__device__ __forceinline__ void draw_row(TableRef const& table, RowTile const& tile, Key key,
                                         FirstRow const& to) {
  auto const format = AnyFormat{table.value_type, to.vectors};
  auto const drawer = RowDrawer(table, table.initializer);
  auto* const row = row_pointer(format, to.row, 0, table.dim);
  Key const keys[1] = {key};
  for (auto c = tile.first_column(); c < table.dim; c += tile.step()) {
    float4 values[1] = {{0, 0, 0, 0}};
    if (writes_rows(table.initializer.kind)) drawer.draw(format, keys, c, values);
    store_quad(format, row, c, table.dim, values[0]);
  }
#pragma unroll
  for (int s = 0; s < kMaxStates; ++s) {
    if (s >= table.num_states) break;
    auto const marks = s == 0 && writes_states_late(table);
    for (auto c = tile.rank; c < table.state_width[s]; c += tile.lanes) {
      to.states[s][c] = marks && c == 0 ? kUnwritten : table.state_initial[s];
    }
  }
}

}  // namespace dynemb::cuda
