// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/update_row.h: the optimizer over the columns of some rows.
#pragma once

#include <cstdint>

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

// gradients[i] holds the dim columns of the summed gradient of slots[i]; kRowsTogether at most.
template <class V>
void update_rows(TableRef const& table, Optimizer const& optimizer, int64_t const* slots,
                 float const* const* gradients, int count) {
  if (optimizer.kind == OptimizerKind::kRowwiseAdagrad) {
    float rates[kRowsTogether];
    for (int i = 0; i < count; ++i) {
      rates[i] = sum_of_squares(gradients[i], table.dim) / static_cast<float>(table.dim);
    }
    for (int i = 0; i < count; ++i) {
      rates[i] = rowwise_adagrad_rate(optimizer, rates[i], state_at(table, 0, slots[i]));
    }
    for (int i = 0; i < count; ++i) {
      subtract(rates[i], gradients[i], table.dim, row_at<V>(table, slots[i]));
    }
    return;
  }
  for (int i = 0; i < count; ++i) update_row<V>(table, optimizer, slots[i], gradients[i]);
}

}  // namespace dynemb::cpu
