// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/update_row.h: the optimizer over the columns of some rows.
#pragma once

#include <cstdint>

#include "core/finite.h"
#include "core/macros.h"
#include "core/optimizer.h"
#include "core/row.h"
#include "core/table_ref.h"

namespace dynemb::cpu {

// 16 sums, a vector's worth, added at the end: each addition waits for the one before it. The
// number is part of the result's bits, so it does not follow the machine's.
inline float sum_of_squares(float const* values, int32_t count) {
  constexpr int kSums = 16;
  float sums[kSums] = {};
  int32_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (int k = 0; k < kSums; ++k) sums[k] += values[i + k] * values[i + k];
  }
  for (int k = 0; i < count; ++i, ++k) sums[k] += values[i] * values[i];
  for (int half = kSums / 2; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k) sums[k] += sums[k + half];
  }
  return sums[0];
}

inline float mean_of_squares(float const* values, int32_t count) {
  return sum_of_squares(values, count) / static_cast<float>(count);
}

// Looks at all columns, without a branch, so that it is vectorised.
inline bool all_finite(float const* values, int32_t count) {
  uint32_t largest = 0;
  for (int32_t i = 0; i < count; ++i) {
    auto const magnitude = float_bits(values[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  return is_finite(float_from_bits(largest));
}

template <class V>
void subtract(float factor, float const* gradient, int32_t dim, V* row) {
  DYNEMB_INDEPENDENT
  for (int32_t i = 0; i < dim; ++i) {
    from_float(to_float(row[i]) - factor * gradient[i], row + i);
  }
}

// By the optimizers that look at each column for itself.
template <class V>
void update_row(TableRef const& table, Optimizer const& optimizer, int64_t slot,
                float const* gradient) {
  auto* const row = row_at<V>(table, slot);
  switch (optimizer.kind) {
    case OptimizerKind::kSgd:
      DYNEMB_INDEPENDENT
      for (int32_t i = 0; i < table.dim; ++i) {
        from_float(sgd(optimizer, to_float(row[i]), gradient[i]), row + i);
      }
      return;
    case OptimizerKind::kAdagrad: {
      auto* const sums = state_at(table, 0, slot);
      DYNEMB_INDEPENDENT
      for (int32_t i = 0; i < table.dim; ++i) {
        from_float(adagrad(optimizer, to_float(row[i]), gradient[i], sums + i), row + i);
      }
      return;
    }
    case OptimizerKind::kRowwiseAdagrad:
      return;  // see update_rows
    case OptimizerKind::kAdam: {
      auto* const mu = state_at(table, 0, slot);
      auto* const nu = state_at(table, 1, slot);
      DYNEMB_INDEPENDENT
      for (int32_t i = 0; i < table.dim; ++i) {
        from_float(adam(optimizer, to_float(row[i]), gradient[i], mu + i, nu + i), row + i);
      }
      return;
    }
  }
}

constexpr int kRowsTogether = 8;

// Some rows and the dim columns of their summed gradients.
struct RowUpdates {
  int count = 0;
  int64_t slots[kRowsTogether];
  float const* gradients[kRowsTogether];
  float squares[kRowsTogether];  // means over the columns, where the optimizer has a rate for a row

  void append(int64_t slot, float const* gradient, float square) {
    slots[count] = slot;
    gradients[count] = gradient;
    squares[count++] = square;
  }
};

template <class V>
void update_rows(TableRef const& table, Optimizer const& optimizer, RowUpdates const& rows) {
  if (!is_rowwise(optimizer.kind)) {
    for (int i = 0; i < rows.count; ++i) {
      update_row<V>(table, optimizer, rows.slots[i], rows.gradients[i]);
    }
    return;
  }
  float rates[kRowsTogether];
  for (int i = 0; i < rows.count; ++i) {
    auto* const state = state_at(table, 0, rows.slots[i]);
    rates[i] = rowwise_adagrad_rate(optimizer, rows.squares[i], state);
  }
  for (int i = 0; i < rows.count; ++i) {
    subtract(rates[i], rows.gradients[i], table.dim, row_at<V>(table, rows.slots[i]));
  }
}

}  // namespace dynemb::cpu
