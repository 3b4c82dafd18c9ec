// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/update_row.h: the optimizer over the columns of some rows.
#pragma once

#include <cstdint>

#include "core/finite.h"
#include "core/group.h"
#include "core/macros.h"
#include "core/optimizer.h"
#include "core/row.h"
#include "core/table_ref.h"
#include "cpu/gradients/rounded_rows.h"

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

// Whether a magnitude is 2 or more, as that of a number that is not finite is: one bit of each.
// Most gradients are smaller, and a vector of them takes one instruction.
inline bool any_is_large(float const* values, int32_t count) {
  uint32_t bits = 0;
  for (int32_t i = 0; i < count; ++i) bits |= float_bits(values[i]);
  return (bits & 0x40000000u) != 0;
}

inline bool all_finite(float const* values, int32_t count) {
  auto finite = true;
  for (int32_t i = 0; i < count; ++i) finite &= is_finite(values[i]);
  return finite;
}

template <class V>
void subtract(float factor, float const* gradient, int32_t dim, V* row) {
  DYNEMB_INDEPENDENT
  for (int32_t i = 0; i < dim; ++i) {
    from_float(to_float(row[i]) - factor * gradient[i], row + i);
  }
}

// This is for optimizers that look at each column for itself.
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
    case OptimizerKind::kAdam: {
      auto* const mu = state_at(table, 0, slot);
      auto* const nu = state_at(table, 1, slot);
      DYNEMB_INDEPENDENT
      for (int32_t i = 0; i < table.dim; ++i) {
        from_float(adam(optimizer, to_float(row[i]), gradient[i], mu + i, nu + i), row + i);
      }
      return;
    }
    default:
      return;  // kRowwiseAdagrad: see update_rows; others: any_optimizer.h
  }
}

constexpr int kRowsTogether = 8;

// Rows that are updated together, and the dim columns of the summed gradient of each.
struct RowUpdates {
  int count = 0;
  int64_t slots[kRowsTogether];
  float const* gradients[kRowsTogether];
  float squares[kRowsTogether];  // means over the columns, where the optimizer has a rate for a row

  // Skips rows with gradients that are not finite (core/finite.h); returns how many. With
  // `has_squares` it tests the means of squares: a mean is finite only if all its columns are.
  int drop_nonfinite(bool has_squares, int32_t dim) {
    auto const all = count;
    count = 0;
    for (int i = 0; i < all; ++i) {
      slots[count] = slots[i];
      gradients[count] = gradients[i];
      squares[count] = squares[i];
      count += has_squares ? is_finite(squares[i]) : all_finite(gradients[i], dim);
    }
    return all - count;
  }
};

inline void find_squares(RowUpdates& rows, int32_t dim) {
  for (int i = 0; i < rows.count; ++i) {
    rows.squares[i] = mean_of_squares(rows.gradients[i], dim);
  }
}

// Whether all gradients are finite for sure; one look at all rows together.
inline bool surely_finite(RowUpdates const& rows, int32_t dim) {
  auto large = false;
  for (int i = 0; i < rows.count; ++i) large |= any_is_large(rows.gradients[i], dim);
  return !large;
}

inline bool surely_finite(Optimizer const& optimizer, RowUpdates const& rows, int32_t dim) {
  if (!is_rowwise(optimizer.kind)) return surely_finite(rows, dim);
  auto sum = 0.0f;
  for (int i = 0; i < rows.count; ++i) sum += rows.squares[i];
  return is_finite(sum);
}

template <class V>
void update_rowwise(TableRef const& table, Optimizer const& optimizer, RowUpdates const& rows) {
  float rates[kRowsTogether];
  for (int i = 0; i < rows.count; ++i) {
    auto* const state = state_at(table, 0, rows.slots[i]);
    rates[i] = rowwise_adagrad_rate(optimizer, rows.squares[i], state);
  }
  if (sizeof(V) == 2 && table.rounds_stochastically != 0) {
    return subtract_rounded(table, rows, rates);
  }
  for (int i = 0; i < rows.count; ++i) {
    subtract(rates[i], rows.gradients[i], table.dim, row_at<V>(table, rows.slots[i]));
  }
}

// Returns how many rows it skipped, since their gradients are not finite.
template <class V>
int update_rows(TableRef const& table, Optimizer const& optimizer, RowUpdates& rows) {
  if (is_rowwise(optimizer.kind)) find_squares(rows, table.dim);
  auto const checks = table.skips_nonfinite != 0 && !surely_finite(optimizer, rows, table.dim);
  auto const skipped = checks ? rows.drop_nonfinite(is_rowwise(optimizer.kind), table.dim) : 0;
  for (int i = 0; i < rows.count; ++i) {
    auto const slot = rows.slots[i];
    if (has_unwritten_states(table, slot)) initialize_states(ScalarGroup{}, table, slot);
  }
  if (is_rowwise(optimizer.kind)) {
    update_rowwise<V>(table, optimizer, rows);
  } else {
    for (int i = 0; i < rows.count; ++i) {
      update_row<V>(table, optimizer, rows.slots[i], rows.gradients[i]);
    }
  }
  return skipped;
}

}  // namespace dynemb::cpu
