// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/optimizers/rmsprop.h: RMSprop: a mean of squares for each column, or one for the row.
#pragma once

#include "core/optimizers/functor.h"

namespace dynemb {

struct Rmsprop : NoStages {
  static constexpr char const* kName = "rmsprop";
  static constexpr char const* kHyper[] = {"learning_rate", "decay", "eps", "eps_in_sqrt"};
  static constexpr int kWide = 1;  // nu

  float learning_rate, decay, inside, outside;  // epsilon in the root, or beside it

  DYNEMB_HD static Rmsprop prepare(float const* hyper, uint64_t) {
    auto const epsilon = safe_epsilon(hyper[2]);
    if (hyper[3] == 0.0f) return {{}, hyper[0], hyper[1], 0.0f, epsilon};
    // In the root the least epsilon is the square of the other, so that the root has its size.
    auto const least = kLeastEpsilon * kLeastEpsilon;
    return {{}, hyper[0], hyper[1], hyper[2] > least ? hyper[2] : least, 0.0f};
  }

  DYNEMB_HD float update(RowFactors const&, float w, float g, float* wide) const {
    wide[0] = decay * wide[0] + (1.0f - decay) * g * g;
    auto const root = approximate_root(wide[0] + inside) + outside;
    return w - approximate_quotient(learning_rate * g, root);
  }
};

struct RowwiseRmsprop : NoStages {
  static constexpr char const* kName = "rowwise_rmsprop";
  static constexpr char const* kHyper[] = {"learning_rate", "decay", "eps"};
  static constexpr int kNumbers = 1;  // nu

  float learning_rate, decay, epsilon;

  DYNEMB_HD static RowwiseRmsprop prepare(float const* hyper, uint64_t) {
    return {{}, hyper[0], hyper[1], safe_epsilon(hyper[2])};
  }

  DYNEMB_HD int stages() const { return 1; }

  template <int k>
  DYNEMB_HD void add(RowFactors const&, float, float g, float const*, RowSums2& sums) const {
    sums.a += g * g;
  }

  template <int k>
  DYNEMB_HD void finish(RowSums2 const& sums, float dim, RowNumbers& row, RowFactors& f) const {
    row.of[0] = decay * row.of[0] + (1.0f - decay) * approximate_quotient(sums.a, dim);
    f.of[0] = approximate_quotient(learning_rate, approximate_root(row.of[0]) + epsilon);
  }

  DYNEMB_HD float update(RowFactors const& f, float w, float g, float*) const {
    return w - f.of[0] * g;
  }
};

}  // namespace dynemb
