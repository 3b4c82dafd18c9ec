// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/optimizers/sgd.h: stochastic gradient descent.
#pragma once

#include "core/optimizers/functor.h"

namespace dynemb {

struct Sgd : NoStages {
  static constexpr char const* kName = "sgd";
  static constexpr char const* kHyper[] = {"learning_rate"};

  float learning_rate;

  DYNEMB_HD static Sgd prepare(float const* hyper, uint64_t) { return {{}, hyper[0]}; }

  DYNEMB_HD float update(RowFactors const&, float w, float g, float*) const {
    return w - learning_rate * g;
  }
};

}  // namespace dynemb
