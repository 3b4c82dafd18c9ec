// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/row.h: rows as wholes: where they lie, and their first values.
#pragma once

#include <cstdint>

#include "core/macros.h"
#include "core/table_ref.h"
#include "core/value_type.h"

namespace dynemb {

template <class V>
DYNEMB_HD V* row_at(TableRef const& table, int64_t slot) {
  return static_cast<V*>(table.values) + slot * table.dim;
}

DYNEMB_HD float* state_at(TableRef const& table, int state, int64_t slot) {
  return table.states[state] + slot * table.state_width[state];
}

// Some states with a number for each column are bfloat16; all others are read by state_at.
DYNEMB_HD bool is_half_state(TableRef const& table, int state) {
  return (table.half_states >> state & 1) != 0;
}

DYNEMB_HD BFloat16* half_state_at(TableRef const& table, int state, int64_t slot) {
  return reinterpret_cast<BFloat16*>(table.states[state]) + slot * table.state_width[state];
}

DYNEMB_HD int32_t bytes_of_state(TableRef const& table, int state) {
  return table.state_width[state] * (is_half_state(table, state) ? 2 : 4);
}

// A serving lookup is given no counters if no row depends on the seed.
DYNEMB_HD RowSeed row_seed(TableRef const& table) {
  if (table.counters == nullptr) return {0, 0};
  return {table.counters[kSeed], static_cast<uint32_t>(table.counters[kFirstColumn] / 4)};
}

// Writes the initial row of `key` to `row`, each lane four columns at a time.
template <class Group, class V>
DYNEMB_HD void initialize_row(Group const& group, Initializer const& initializer,
                              RowSeed const& seed, Key key, int32_t dim, V* row) {
  Key const keys[1] = {key};
  for (int32_t column = group.rank() * 4; column < dim; column += group.size() * 4) {
    float values[1][4];
    initial_values(initializer, seed, keys, static_cast<uint32_t>(column) / 4, values);
    for (int i = 0; i < 4 && column + i < dim; ++i) from_float(values[0][i], row + column + i);
  }
}

// Optimizer states of new rows are written late: most are read, changed and written again by the
// update that follows, so their first values would cross the memory twice for nothing. If the first
// state has more than one column, a new row gets a mark in it and nothing else. Every read or write
// of states treats a row with the mark as one with initial states. No optimizer computes the value
// of the mark: sums of squares are not negative, and means of gradients are not as large.
constexpr float kUnwritten = -3.402823466e+38f;
// The same in bfloat16, to which the other would become infinite: its own lowest number.
constexpr uint16_t kUnwrittenHalf = 0xff7f;

DYNEMB_HD bool writes_states_late(TableRef const& table) {
  return table.num_states > 0 && table.state_width[0] > 1;
}

DYNEMB_HD bool has_unwritten_states(TableRef const& table, int64_t slot) {
  if (!writes_states_late(table)) return false;
  if (is_half_state(table, 0)) return half_state_at(table, 0, slot)->bits == kUnwrittenHalf;
  return *state_at(table, 0, slot) == kUnwritten;
}

// One lane calls this.
DYNEMB_HD void mark_unwritten(TableRef const& table, int64_t slot) {
  if (is_half_state(table, 0)) {
    half_state_at(table, 0, slot)->bits = kUnwrittenHalf;
  } else {
    *state_at(table, 0, slot) = kUnwritten;
  }
}

template <class Group>
DYNEMB_HD void initialize_states(Group const& group, TableRef const& table, int64_t slot) {
  for (int state = 0; state < table.num_states; ++state) {
    auto const initial = table.state_initial[state];
    for (int32_t i = group.rank(); i < table.state_width[state]; i += group.size()) {
      if (is_half_state(table, state)) {
        from_float(initial, half_state_at(table, state, slot) + i);
      } else {
        state_at(table, state, slot)[i] = initial;
      }
    }
  }
}

template <class Group>
DYNEMB_HD void initialize_row(Group const& group, TableRef const& table, Key key, int64_t slot) {
  auto const seed = row_seed(table);
  switch (table.value_type) {
    case ValueType::kFloat32:
      initialize_row(group, table.initializer, seed, key, table.dim, row_at<float>(table, slot));
      break;
    case ValueType::kBFloat16:
      initialize_row(group, table.initializer, seed, key, table.dim, row_at<BFloat16>(table, slot));
      break;
    case ValueType::kFloat16:
      initialize_row(group, table.initializer, seed, key, table.dim, row_at<Float16>(table, slot));
      break;
  }
}

// Everything that a new row starts with.
template <class Group>
DYNEMB_HD void initialize_slot(Group const& group, TableRef const& table, Key key, int64_t slot) {
  if (writes_rows(table.initializer.kind)) initialize_row(group, table, key, slot);
  if (!writes_states_late(table)) return initialize_states(group, table, slot);
  if (group.rank() == 0) mark_unwritten(table, slot);
}

}  // namespace dynemb
