// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/tiers/record.h: the home record of a row: the row, then its optimizer states in their order,
// each at a multiple of 4 bytes, then padding up to a multiple of 16.
//
// All are copied as they are, and so is the mark of states that are not written yet (core/row.h).
#pragma once

#include <cstdint>

#include "core/macros.h"
#include "core/table_ref.h"
#include "core/value_type.h"

namespace dynemb {

DYNEMB_HD int64_t row_bytes_of(TableRef const& table) {
  return int64_t{table.dim} * (table.value_type == ValueType::kFloat32 ? 4 : 2);
}

// Where a state begins in the record; with `state` = num_states, where the last one ends.
DYNEMB_HD int64_t state_offset(TableRef const& table, int state) {
  auto offset = (row_bytes_of(table) + 3) / 4 * 4;
  for (int s = 0; s < state; ++s) offset += int64_t{4} * table.state_width[s];
  return offset;
}

DYNEMB_HD int64_t record_bytes_of(TableRef const& table) {
  return (state_offset(table, table.num_states) + 15) / 16 * 16;
}

}  // namespace dynemb
