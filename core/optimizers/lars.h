// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/optimizers/lars.h: LARS (You et al., 2017) with a row as its layer; FBGEMM's lars_sgd.
#pragma once

#include "core/optimizers/functor.h"

namespace dynemb {

struct Lars : NoStages {
  static constexpr char const* kName = "lars";
  static constexpr char const* kHyper[] = {"learning_rate", "eta", "momentum", "weight_decay"};
  static constexpr int kWide = 1;  // trace
  static constexpr int kSums = 2;

  float learning_rate, eta, momentum, weight_decay;

  DYNEMB_HD static Lars prepare(float const* hyper, uint64_t) {
    return {{}, hyper[0], hyper[1], hyper[2], hyper[3]};
  }

  DYNEMB_HD int stages() const { return 1; }

  template <int k>
  DYNEMB_HD void add(RowFactors const&, float w, float g, float const*, RowSums2& sums) const {
    sums.a += w * w;
    sums.b += g * g;
  }

  // A row of zeros has the ratio 1: with the formula's 0 it would never move.
  template <int k>
  DYNEMB_HD void finish(RowSums2 const& sums, float, RowNumbers&, RowFactors& f) const {
    auto const norm = approximate_root(sums.a);
    auto const scale = approximate_root(sums.b) + weight_decay * norm;
    auto const ratio = norm > 0.0f ? approximate_quotient(norm, scale) : 1.0f;
    f.of[0] = scale > 0.0f ? learning_rate * eta * ratio : 0.0f;
  }

  DYNEMB_HD float update(RowFactors const& f, float w, float g, float* wide) const {
    wide[0] = momentum * wide[0] + f.of[0] * (g + weight_decay * w);
    return w - wide[0];
  }
};

}  // namespace dynemb
