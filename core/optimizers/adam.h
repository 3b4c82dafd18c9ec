// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/optimizers/adam.h: Adam with decoupled weight decay. The bias correction counts the updates
// of the table, or of the row, or there is none.
#pragma once

#include "core/optimizers/functor.h"

namespace dynemb {

struct Adam : NoStages {
  static constexpr char const* kName = "adam";
  static constexpr char const* kHyper[] = {"learning_rate", "eps",     "b1", "b2",
                                           "weight_decay",  "corrects"};
  static constexpr int kWide = 2;  // mu, nu

  float learning_rate, epsilon, weight_decay;
  Moments moments;

  DYNEMB_HD static Adam prepare(float const* hyper, uint64_t step) {
    return {{},
            hyper[0],
            safe_epsilon(hyper[1]),
            hyper[4],
            moments_of(hyper[2], hyper[3], hyper[5], step)};
  }

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

// Each row counts its own updates. The count stops at 2^24, where the corrections are 1.
struct RowCountedAdam : Adam {
  static constexpr char const* kName = "row_counted_adam";
  static constexpr int kNumbers = 1;  // count

  float log_b1, log_b2;

  DYNEMB_HD static RowCountedAdam prepare(float const* hyper, uint64_t step) {
    return {Adam::prepare(hyper, step), static_cast<float>(log(static_cast<double>(hyper[2]))),
            static_cast<float>(log(static_cast<double>(hyper[3])))};
  }

  // 1 / (1 - b^count). Without a difference of numbers near one.
  DYNEMB_HD static float correction(float log_beta, float count) {
    return -1.0f / expm1f(count * log_beta);
  }

  DYNEMB_HD void begin(RowNumbers& row, RowFactors& f) const {
    row.of[0] += 1.0f;
    f = {{correction(log_b1, row.of[0]), correction(log_b2, row.of[0]), 0.0f}};
  }

  DYNEMB_HD float update(RowFactors const& f, float w, float g, float* wide) const {
    return moved(f.of[0], f.of[1], w, g, wide);
  }
};

// One second moment a row: the mean of the squares of its columns.
struct PartialRowwiseAdam : NoStages {
  static constexpr char const* kName = "partial_rowwise_adam";
  static constexpr char const* const (&kHyper)[6] = Adam::kHyper;
  static constexpr int kWide = 1;     // mu
  static constexpr int kNumbers = 1;  // nu

  float learning_rate, epsilon, weight_decay;
  Moments moments;

  DYNEMB_HD static PartialRowwiseAdam prepare(float const* hyper, uint64_t step) {
    return {{},
            hyper[0],
            safe_epsilon(hyper[1]),
            hyper[4],
            moments_of(hyper[2], hyper[3], hyper[5], step)};
  }

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
