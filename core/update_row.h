// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/update_row.h: the optimizer over the columns of one row, for a group of lanes.
#pragma once

#include <cstdint>

#include "core/group.h"
#include "core/macros.h"
#include "core/optimizer.h"
#include "core/row.h"
#include "core/table_ref.h"

namespace dynemb {

template <class Group>
DYNEMB_HD float sum_of_squares(Group const& group, float const* values, int32_t count) {
  float sum = 0.0f;
  for (int32_t i = group.rank(); i < count; i += group.size()) sum += values[i] * values[i];
  return group.sum(sum);
}

// One CPU thread keeps 16 sums, a vector's worth, and adds them at the end: each addition waits for
// the one before it. The number is part of the result's bits, so it does not follow the machine's.
DYNEMB_HD float sum_of_squares(ScalarGroup const&, float const* values, int32_t count) {
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

// `gradient` holds the dim columns of the summed gradient in memory that every lane can read.
template <class Group, class V>
DYNEMB_HD void update_row(Group const& group, TableRef const& table, Optimizer const& optimizer,
                          int64_t slot, float const* gradient) {
  auto* const row = row_at<V>(table, slot);
  auto const begin = group.rank(), step = group.size();
  switch (optimizer.kind) {
    case OptimizerKind::kSgd:
      DYNEMB_INDEPENDENT
      for (int32_t i = begin; i < table.dim; i += step) {
        from_float(sgd(optimizer, to_float(row[i]), gradient[i]), row + i);
      }
      return;
    case OptimizerKind::kAdagrad: {
      auto* const sums = state_at(table, 0, slot);
      DYNEMB_INDEPENDENT
      for (int32_t i = begin; i < table.dim; i += step) {
        from_float(adagrad(optimizer, to_float(row[i]), gradient[i], sums + i), row + i);
      }
      return;
    }
    case OptimizerKind::kRowwiseAdagrad: {
      auto* const state = state_at(table, 0, slot);
      auto sum = *state;  // before the lanes meet: one of them writes it after
      auto const mean = sum_of_squares(group, gradient, table.dim) / static_cast<float>(table.dim);
      auto const rate = rowwise_adagrad_rate(optimizer, mean, &sum);
      if (group.rank() == 0) *state = sum;
      DYNEMB_INDEPENDENT
      for (int32_t i = begin; i < table.dim; i += step) {
        from_float(to_float(row[i]) - rate * gradient[i], row + i);
      }
      return;
    }
    case OptimizerKind::kAdam: {
      auto* const mu = state_at(table, 0, slot);
      auto* const nu = state_at(table, 1, slot);
      DYNEMB_INDEPENDENT
      for (int32_t i = begin; i < table.dim; i += step) {
        from_float(adam(optimizer, to_float(row[i]), gradient[i], mu + i, nu + i), row + i);
      }
      return;
    }
  }
}

}  // namespace dynemb
