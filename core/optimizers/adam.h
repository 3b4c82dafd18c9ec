// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/optimizers/adam.h: Adam with decoupled weight decay. The bias correction counts the updates
// of the table, or of the row, or there is none.
#pragma once

#include "core/optimizers/functor.h"

namespace dynemb {

// Holds the numbers that Adam and its kin take. `Kind` is the struct of one of them, which adds no
// numbers.
template <class Kind>
struct AdamNumbers : NoStages {
  static constexpr char const* kHyper[] = {"learning_rate", "eps",     "b1", "b2",
                                           "weight_decay",  "corrects"};

  float learning_rate, epsilon, weight_decay;
  Moments moments;

  DYNEMB_HD static Kind prepare(float const* hyper, uint64_t step) {
    Kind result;
    result.learning_rate = hyper[0];
    result.epsilon = safe_epsilon(hyper[1]);
    result.weight_decay = hyper[4];
    result.moments = moments_of(hyper[2], hyper[3], hyper[5], step);
    return result;
  }
};

struct Adam : AdamNumbers<Adam> {
  static constexpr char const* kName = "adam";
  static constexpr int kWide = 2;  // mu, nu

  DYNEMB_HD float update(RowFactors const&, float w, float g, float* wide) const {
    return moved(moments.correction1, moments.correction2, w, g, wide);
  }

  DYNEMB_HD float moved(float correction1, float correction2, float w, float g, float* wide) const {
    wide[0] = moments.first(wide[0], g);
    wide[1] = moments.second(wide[1], g);
    auto const direction = approximate_quotient(wide[0] * correction1,
                                                approximate_root(wide[1] * correction2) + epsilon);
    return w - learning_rate * (direction + weight_decay * w);
  }
};

// Each row counts its own updates, up to 2^31 - 1.
struct RowCountedAdam : Adam {
  static constexpr char const* kName = "row_counted_adam";
  static constexpr int kInts = 1;  // count

  float log_b1, log_b2;

  DYNEMB_HD static RowCountedAdam prepare(float const* hyper, uint64_t step) {
    return {Adam::prepare(hyper, step), log_of(hyper[2]), log_of(hyper[3])};
  }

  // 1 / (1 - b^count). expm1 avoids the difference of two numbers near one.
  DYNEMB_HD static float correction(float log_beta, float count) {
    return -1.0f / expm1f(count * log_beta);
  }

  DYNEMB_HD void begin(RowNumbers& row, RowFactors& f) const {
    if (row.ints[0] < 0x7fffffffu) ++row.ints[0];
    auto const count = static_cast<float>(row.ints[0]);
    f.of[0] = correction(log_b1, count);
    f.of[1] = correction(log_b2, count);
  }

  DYNEMB_HD float update(RowFactors const& f, float w, float g, float* wide) const {
    return moved(f.of[0], f.of[1], w, g, wide);
  }
};

// One second moment a row: the mean of the squares of its columns.
struct PartialRowwiseAdam : AdamNumbers<PartialRowwiseAdam> {
  static constexpr char const* kName = "partial_rowwise_adam";
  static constexpr int kWide = 1;     // mu
  static constexpr int kNumbers = 1;  // nu

  DYNEMB_HD int stages() const { return 1; }

  template <int k>
  DYNEMB_HD void add(RowFactors const&, float, float g, float const*, RowSums2& sums) const {
    sums.a += g * g;
  }

  template <int k>
  DYNEMB_HD void finish(RowSums2 const& sums, float dim, RowNumbers& row, RowFactors& f) const {
    row.of[0] = moments.second_of_mean(row.of[0], approximate_quotient(sums.a, dim));
    f.of[0] = approximate_root(row.of[0] * moments.correction2) + epsilon;
  }

  DYNEMB_HD float update(RowFactors const& f, float w, float g, float* wide) const {
    wide[0] = moments.first(wide[0], g);
    auto const direction = approximate_quotient(wide[0] * moments.correction1, f.of[0]);
    return w - learning_rate * (direction + weight_decay * w);
  }
};

}  // namespace dynemb
