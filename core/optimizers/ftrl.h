// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/optimizers/ftrl.h: FTRL-proximal (McMahan et al., 2013), with TensorFlow's shrinkage.
#pragma once

#include "core/finite.h"
#include "core/optimizers/functor.h"

namespace dynemb {

// `consistent`: a column that has had no gradient starts with the z that gives its initial value,
// so a warm row goes on from where it is. It is recognised by z = 0 and the initial n.
//
// At a learning rate of zero rows and states stay: their limit is not defined. So does a column
// whose n would overflow.
struct Ftrl : NoStages {
  static constexpr char const* kName = "ftrl";
  static constexpr char const* kHyper[] = {
      "learning_rate", "l1", "l2", "beta", "l2_shrinkage", "lr_power", "initial_accumulator_value",
      "consistent"};
  static constexpr int kWide = 2;  // z, n

  float learning_rate, l1, l2, beta, shrinkage, power, first_n, consistent;

  DYNEMB_HD static Ftrl prepare(float const* hyper, uint64_t) {
    return {{}, hyper[0], hyper[1], hyper[2], hyper[3], hyper[4], -hyper[5], hyper[6], hyper[7]};
  }

  DYNEMB_HD float raised(float n) const {
    return power == 0.5f ? approximate_root(n) : powf(n, power);
  }

  DYNEMB_HD float update(RowFactors const&, float w, float g, float* wide) const {
    auto z = wide[0];
    auto const n = wide[1];
    auto const next = n + g * g;
    if (!(learning_rate > 0.0f) || !is_finite(next)) return w;
    auto const before = raised(n);
    if (consistent != 0.0f && z == 0.0f && n == first_n) {
      z = -approximate_quotient(w * (beta + before), learning_rate);
    }
    auto const after = raised(next);
    z += g + 2.0f * shrinkage * w - approximate_quotient(after - before, learning_rate) * w;
    wide[0] = z;
    wide[1] = next;
    auto const slope = approximate_quotient(beta + after, learning_rate) + l2;
    auto const pulled = z > 0.0f ? z - l1 : z + l1;
    auto const stays_zero = fabsf(z) <= l1 || !(slope > 0.0f);
    return stays_zero ? 0.0f : -approximate_quotient(pulled, slope);
  }
};

}  // namespace dynemb
