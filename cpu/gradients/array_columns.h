// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/array_columns.h: the columns of a row, or of one of its states, as float32 for the
// time of an update.
//
// What has 16 bits passes through a buffer. Its loops are not a part of those of each optimizer,
// which would become larger by a third.
#pragma once

#include <cstdint>

#include "core/finite.h"
#include "core/macros.h"
#include "core/row.h"
#include "core/stochastic.h"
#include "core/table_ref.h"
#include "core/value_type.h"
#include "cpu/gradients/update_row.h"
#include "cpu/loops/isa.h"

namespace dynemb::cpu {

template <class V>
__attribute__((noinline)) void widen_columns(V const* columns, int32_t dim, float* floats) {
  with_isa([&](auto) {
    DYNEMB_INDEPENDENT
    for (int32_t i = 0; i < dim; ++i) floats[i] = to_float(columns[i]);
  });
}

template <class V>
__attribute__((noinline)) void round_to_nearest(float const* floats, int32_t dim, V* columns) {
  with_isa([&](auto) {
    DYNEMB_INDEPENDENT
    for (int32_t i = 0; i < dim; ++i) from_float(floats[i], columns + i);
  });
}

// Most rows have no number of magnitude 2 or more. Where the compiler knows that all are finite, it
// leaves out half of the rule of core/stochastic.h.
template <class V>
void round_columns(float const* floats, uint16_t const* random, int32_t dim, V* columns) {
  if (any_is_large(floats, dim)) {
    DYNEMB_INDEPENDENT
    for (int32_t i = 0; i < dim; ++i) round_stochastically(floats[i], random[i], columns + i);
    return;
  }
  DYNEMB_INDEPENDENT
  for (int32_t i = 0; i < dim; ++i) {
    if (!is_finite(floats[i])) __builtin_unreachable();
    round_stochastically(floats[i], random[i], columns + i);
  }
}

template <class V>
__attribute__((noinline)) void round_at_random(float const* floats, uint16_t const* random,
                                               int32_t dim, V* columns) {
  with_isa([&](auto) { round_columns(floats, random, dim, columns); });
}

// Arrays of a table with a number for each column are counted as in RoundingSeed: the rows, then
// the wide states.
inline ValueType type_of_array(TableRef const& table, int array) {
  if (array == 0) return table.value_type;
  return is_half_state(table, array - 1) ? ValueType::kBFloat16 : ValueType::kFloat32;
}

// One row of an array.
struct ArrayColumns {
  ArrayColumns(TableRef const& table, int array, int64_t slot)
      : type(type_of_array(table, array)), dim(table.dim) {
    auto* const first = array == 0 ? table.values : static_cast<void*>(table.states[array - 1]);
    columns = static_cast<char*>(first) + slot * dim * (type == ValueType::kFloat32 ? 4 : 2);
  }

  // Returns the columns where they lie, or converted in `buffer`.
  float* load(float* buffer) const {
    if (type == ValueType::kFloat32) return static_cast<float*>(columns);
    with_half([&](auto const* halves) { widen_columns(halves, dim, buffer); });
    return buffer;
  }

  // `random`: 16 bits for each column, or null: to nearest.
  void store(float const* floats, uint16_t const* random) const {
    if (type == ValueType::kFloat32) return;
    with_half([&](auto* halves) {
      if (random == nullptr) return round_to_nearest(floats, dim, halves);
      round_at_random(floats, random, dim, halves);
    });
  }

 private:
  template <class Function>
  void with_half(Function const& function) const {
    if (type == ValueType::kBFloat16) return function(static_cast<BFloat16*>(columns));
    function(static_cast<Float16*>(columns));
  }

  ValueType type;
  int32_t dim;
  void* columns;
};

}  // namespace dynemb::cpu
