// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/rounded_rows.cc: see rounded_rows.h.
#include "cpu/gradients/rounded_rows.h"

#include <vector>

#include "cpu/gradients/array_columns.h"
#include "cpu/gradients/rounding_bits.h"
#include "cpu/gradients/update_row.h"
#include "cpu/loops/isa.h"

namespace dynemb::cpu {

void subtract_rounded(TableRef const& table, RowUpdates const& rows, float const* rates) {
  thread_local std::vector<float> buffer;  // only grows
  if (buffer.size() < size_t(table.dim)) buffer.resize(size_t(table.dim));
  auto& bits = RoundingBits::of_this_thread(0);
  with_isa([&](auto isa) {
    bits.draw<decltype(isa)::value>(table, rows, 0);
    for (int i = 0; i < rows.count; ++i) {
      auto const row = ArrayColumns(table, 0, rows.slots[i]);
      auto* const floats = row.load(buffer.data());
      subtract(rates[i], rows.gradients[i], table.dim, floats);
      row.store(floats, bits.of_row(i));
    }
  });
}

}  // namespace dynemb::cpu
