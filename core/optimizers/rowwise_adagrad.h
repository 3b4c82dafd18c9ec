// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/optimizers/rowwise_adagrad.h: Adagrad with one sum of squares a row, with weight decay of
// either kind and a bound on the norm of the new row.
//
// Formulas: FBGEMM, exact_rowwise_adagrad. L2 decay enters the sum of squares; the row itself is
// scaled, and moves by the gradient alone.
#pragma once

#include "core/optimizers/functor.h"

namespace dynemb {

struct RowwiseAdagrad : NoStages {
  static constexpr char const* kName = "rowwise_adagrad";
  static constexpr char const* kHyper[] = {"learning_rate", "eps", "l2", "weight_decay",
                                           "max_norm"};
  static constexpr int kNumbers = 1;  // sum_of_squares

  float learning_rate, epsilon, l2, weight_decay, max_norm;

  DYNEMB_HD static RowwiseAdagrad prepare(float const* hyper, uint64_t) {
    return {{}, hyper[0], safe_epsilon(hyper[1]), hyper[2], hyper[3], hyper[4]};
  }

  DYNEMB_HD int stages() const { return max_norm > 0.0f ? 2 : 1; }

  template <int k>
  DYNEMB_HD void add(RowFactors const& f, float w, float g, float const*, RowSums2& sums) const {
    auto const x = k == 0 ? g + l2 * w : moved(f, w, g);
    sums.a += x * x;
  }

  template <int k>
  DYNEMB_HD void finish(RowSums2 const& sums, float dim, RowNumbers& row, RowFactors& f) const {
    if (k == 0) {
      row.of[0] += approximate_quotient(sums.a, dim);
      auto const rate = approximate_quotient(learning_rate, approximate_root(row.of[0]) + epsilon);
      f.of[0] = rate;
      f.of[1] = 1.0f - rate * l2 - learning_rate * weight_decay;
      f.of[2] = 1.0f;
    } else {
      auto const norm = approximate_root(sums.a);
      if (norm > max_norm) f.of[2] = approximate_quotient(max_norm, norm);
    }
  }

  DYNEMB_HD float moved(RowFactors const& f, float w, float g) const {
    return f.of[1] * w - f.of[0] * g;
  }

  DYNEMB_HD float update(RowFactors const& f, float w, float g, float*) const {
    return f.of[2] * moved(f, w, g);
  }
};

}  // namespace dynemb
