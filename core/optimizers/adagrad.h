// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/optimizers/adagrad.h: Adagrad (Duchi et al., 2011) with the epsilon outside the root.
#pragma once

#include "core/optimizers/functor.h"

namespace dynemb {

struct Adagrad : NoStages {
  static constexpr char const* kName = "adagrad";
  static constexpr char const* kHyper[] = {"learning_rate", "eps"};
  static constexpr int kWide = 1;  // sum_of_squares

  float learning_rate, epsilon;

  DYNEMB_HD static Adagrad prepare(float const* hyper, uint64_t) {
    return {{}, hyper[0], safe_epsilon(hyper[1])};
  }

  DYNEMB_HD float update(RowFactors const&, float w, float g, float* wide) const {
    wide[0] += g * g;
    return w - approximate_quotient(learning_rate * g, approximate_root(wide[0]) + epsilon);
  }
};

}  // namespace dynemb
