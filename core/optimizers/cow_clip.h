// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/optimizers/cow_clip.h: row-wise Adagrad whose step is bounded by how often a row occurs and
// by its norm (Zheng et al., CowClip, AAAI 2023).
//
// Formulas: FBGEMM, exact_rowwise_adagrad with COWCLIP. A gradient of zero is not divided by zero.
#pragma once

#include "core/optimizers/functor.h"

namespace dynemb {

struct CowClipRowwiseAdagrad : NoStages {
  static constexpr char const* kName = "cow_clip_rowwise_adagrad";
  static constexpr char const* kHyper[] = {
      "learning_rate", "eps", "l2", "weight_decay", "half_life", "coefficient", "lower_bound"};
  static constexpr int kNumbers = 2;  // sum_of_squares, count
  static constexpr int kInts = 1;     // last
  static constexpr int kSums = 2;

  float learning_rate, epsilon, l2, weight_decay, log_half, coefficient, lower_bound;
  uint32_t step;

  // Without a half-life no occurrence is forgotten.
  DYNEMB_HD static CowClipRowwiseAdagrad prepare(float const* hyper, uint64_t step) {
    auto const log_half = hyper[4] > 0.0f ? -0.6931471805599453 / hyper[4] : 0.0;
    return {{},       hyper[0], safe_epsilon(hyper[1]),
            hyper[2], hyper[3], static_cast<float>(log_half),
            hyper[5], hyper[6], static_cast<uint32_t>(step)};
  }

  DYNEMB_HD int stages() const { return 1; }

  DYNEMB_HD void begin(RowNumbers& row, RowFactors&) const {
    row.of[1] = 1.0f + power(log_half, interval_of(row.ints[0], step)) * row.of[1];
  }

  template <int k>
  DYNEMB_HD void add(RowFactors const&, float w, float g, float const*, RowSums2& sums) const {
    auto const x = g + l2 * w;
    sums.a += x * x;
    sums.b += w * w;
  }

  template <int k>
  DYNEMB_HD void finish(RowSums2 const& sums, float dim, RowNumbers& row, RowFactors& f) const {
    row.of[0] += approximate_quotient(sums.a, dim);
    auto const rate = approximate_quotient(learning_rate, approximate_root(row.of[0]) + epsilon);
    auto const own = coefficient * approximate_root(sums.b);
    auto const limit = row.of[1] * (own > lower_bound ? own : lower_bound);
    auto const norm = approximate_root(sums.a);
    f.of[0] = norm > limit ? rate * approximate_quotient(limit, norm) : rate;
    f.of[1] = 1.0f - f.of[0] * l2 - learning_rate * weight_decay;
  }

  DYNEMB_HD float update(RowFactors const& f, float w, float g, float*) const {
    return f.of[1] * w - f.of[0] * g;
  }
};

}  // namespace dynemb
