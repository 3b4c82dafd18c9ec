// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/update_row.h: the optimizer over the columns of one row.
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

// `gradient` holds the dim columns of the summed gradient.
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
    case OptimizerKind::kRowwiseAdagrad: {
      auto const mean = sum_of_squares(gradient, table.dim) / static_cast<float>(table.dim);
      auto const rate = rowwise_adagrad_rate(optimizer, mean, state_at(table, 0, slot));
      DYNEMB_INDEPENDENT
      for (int32_t i = 0; i < table.dim; ++i) {
        from_float(to_float(row[i]) - rate * gradient[i], row + i);
      }
      return;
    }
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

}  // namespace dynemb::cpu
