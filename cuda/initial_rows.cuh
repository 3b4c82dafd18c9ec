// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/initial_rows.cuh: first values of rows, four columns a lane (the meaning: core/row.h).
#pragma once

#include <cstdint>

#include "core/row.h"
#include "cuda/row_format.cuh"
#include "cuda/tile_group.cuh"

namespace dynemb::cuda {

__device__ __forceinline__ AnyFormat value_format(TableRef const& table) {
  return {table.value_type, moves_vectors(table.values, table.dim)};
}

// Columns `column` to `column` + 3 of the row of `key`, as a table that stores them reads them.
__device__ __forceinline__ float4 initial_quad(TableRef const& table,
                                               Initializer const& initializer, uint64_t seed,
                                               Key key, int32_t column) {
  float v[4];
  initial_values(initializer, seed, key, static_cast<uint32_t>(column) / 4, v);
  auto const type = table.value_type;
  return {rounded_to(type, v[0]), rounded_to(type, v[1]), rounded_to(type, v[2]),
          rounded_to(type, v[3])};
}

// Fills row and optimizer states of a slot that `key` has just taken.
__device__ __forceinline__ void initialize_slot_by(RowTile const& tile, TableRef const& table,
                                                   Key key, int32_t slot) {
  auto const format = value_format(table);
  auto const seed = table.counters[kSeed];
  auto* const row = row_pointer(format, table.values, slot, table.dim);
  for (auto c = tile.first_column(); c < table.dim; c += tile.step()) {
    store_quad(format, row, c, table.dim, initial_quad(table, table.initializer, seed, key, c));
  }
  for (int s = 0; s < table.num_states; ++s) {
    auto const width = table.state_width[s];
    auto const state_format = AnyFormat{ValueType::kFloat32, moves_vectors(table.states[s], width)};
    auto* const state = reinterpret_cast<char*>(state_at(table, s, slot));
    auto const value = table.state_initial[s];
    for (auto c = tile.first_column(); c < width; c += tile.step()) {
      store_quad(state_format, state, c, width, {value, value, value, value});
    }
  }
}

}  // namespace dynemb::cuda
