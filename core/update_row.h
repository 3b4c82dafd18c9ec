// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/update_row.h: the optimizer over the columns of one row, for a group of lanes.
#pragma once

#include <cstdint>

#include "core/macros.h"
#include "core/optimizer.h"
#include "core/row.h"
#include "core/table_ref.h"

namespace dynemb {

// `gradient` holds the dim columns of the summed gradient in memory that every lane can read.
template <class Group, class V>
DYNEMB_HD void update_row(Group const& group, TableRef const& table, Optimizer const& optimizer,
                          int64_t slot, float const* gradient) {
  auto* const row = row_at<V>(table, slot);
  auto const begin = group.rank(), step = group.size();
  switch (optimizer.kind) {
    case OptimizerKind::kSgd:
      for (int32_t i = begin; i < table.dim; i += step) {
        from_float(sgd(optimizer, to_float(row[i]), gradient[i]), row + i);
      }
      return;
    case OptimizerKind::kAdagrad: {
      auto* const sums = state_at(table, 0, slot);
      for (int32_t i = begin; i < table.dim; i += step) {
        from_float(adagrad(optimizer, to_float(row[i]), gradient[i], sums + i), row + i);
      }
      return;
    }
    case OptimizerKind::kRowwiseAdagrad: {
      auto* const state = state_at(table, 0, slot);
      auto sum = *state;  // before the lanes meet: one of them writes it after
      float squares = 0.0f;
      for (int32_t i = begin; i < table.dim; i += step) squares += gradient[i] * gradient[i];
      auto const mean = group.sum(squares) / static_cast<float>(table.dim);
      auto const rate = rowwise_adagrad_rate(optimizer, mean, &sum);
      if (group.rank() == 0) *state = sum;
      for (int32_t i = begin; i < table.dim; i += step) {
        from_float(to_float(row[i]) - rate * gradient[i], row + i);
      }
      return;
    }
    case OptimizerKind::kAdam: {
      auto* const mu = state_at(table, 0, slot);
      auto* const nu = state_at(table, 1, slot);
      for (int32_t i = begin; i < table.dim; i += step) {
        from_float(adam(optimizer, to_float(row[i]), gradient[i], mu + i, nu + i), row + i);
      }
      return;
    }
  }
}

}  // namespace dynemb
