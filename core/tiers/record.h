// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/tiers/record.h: the home record of a row: the row, then its optimizer states in their order,
// then padding up to a multiple of 16 bytes. A state of several columns begins at such a multiple,
// too, so that all that is wide can be copied 16 bytes at a time.
//
// Padding is never read. All else is copied as they are, and so is the mark of states that are not
// written yet (core/row.h).
#pragma once

#include <cstdint>

#include "core/macros.h"
#include "core/table_ref.h"
#include "core/value_type.h"

namespace dynemb {

DYNEMB_HD int64_t row_bytes_of(TableRef const& table) {
  return int64_t{table.dim} * (table.value_type == ValueType::kFloat32 ? 4 : 2);
}

DYNEMB_HD int64_t round_to(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Where a state begins that follows what ends at `end`.
DYNEMB_HD int64_t state_begin(int64_t end, int32_t width) {
  return round_to(end, width > 1 ? 16 : 4);
}

// Where a state begins in the record.
DYNEMB_HD int64_t state_offset(TableRef const& table, int state) {
  auto offset = state_begin(row_bytes_of(table), table.state_width[0]);
  for (int s = 0; s < state; ++s) {
    auto const end = offset + int64_t{4} * table.state_width[s];
    offset = state_begin(end, table.state_width[s + 1]);
  }
  return offset;
}

DYNEMB_HD int64_t record_bytes_of(TableRef const& table) {
  if (table.num_states == 0) return round_to(row_bytes_of(table), 16);
  auto const last = table.num_states - 1;
  return round_to(state_offset(table, last) + int64_t{4} * table.state_width[last], 16);
}

}  // namespace dynemb
