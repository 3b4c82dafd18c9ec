// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/rounded_rows.cc: see rounded_rows.h.
#include "cpu/gradients/rounded_rows.h"

#include <vector>

#include "core/macros.h"
#include "core/row.h"
#include "cpu/gradients/array_columns.h"
#include "cpu/gradients/rounding_bits.h"
#include "cpu/gradients/update_row.h"
#include "cpu/loops/isa.h"

namespace dynemb::cpu {
namespace {

template <class V>
void subtract_rounded(TableRef const& table, RowUpdates const& rows, float const* rates,
                      RoundingBits const& bits, float* floats) {
  for (int r = 0; r < rows.count; ++r) {
    auto* const row = row_at<V>(table, rows.slots[r]);
    auto const* const gradient = rows.gradients[r];
    DYNEMB_INDEPENDENT
    for (int32_t i = 0; i < table.dim; ++i) floats[i] = to_float(row[i]) - rates[r] * gradient[i];
    round_columns(floats, bits.of_row(r), table.dim, row);
  }
}

}  // namespace

void subtract_rounded(TableRef const& table, RowUpdates const& rows, float const* rates) {
  thread_local std::vector<float> buffer;  // only grows
  if (buffer.size() < size_t(table.dim)) buffer.resize(size_t(table.dim));
  auto& bits = RoundingBits::of_this_thread(0);
  with_isa([&](auto isa) {
    bits.draw<decltype(isa)::value>(table, rows, 0);
    if (table.value_type == ValueType::kBFloat16) {
      subtract_rounded<BFloat16>(table, rows, rates, bits, buffer.data());
    } else {
      subtract_rounded<Float16>(table, rows, rates, bits, buffer.data());
    }
  });
}

}  // namespace dynemb::cpu
