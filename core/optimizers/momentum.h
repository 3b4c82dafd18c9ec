// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/optimizers/momentum.h: SGD with momentum, of Polyak or of Nesterov.
#pragma once

#include "core/optimizers/functor.h"

namespace dynemb {

struct Momentum : NoStages {
  static constexpr char const* kName = "momentum";
  static constexpr char const* kHyper[] = {"learning_rate", "momentum", "nesterov"};
  static constexpr int kWide = 1;  // trace

  float learning_rate, momentum, nesterov;

  DYNEMB_HD static Momentum prepare(float const* hyper, uint64_t) {
    return {{}, hyper[0], hyper[1], hyper[2]};
  }

  DYNEMB_HD float update(RowFactors const&, float w, float g, float* wide) const {
    wide[0] = momentum * wide[0] + g;
    auto const direction = nesterov != 0.0f ? g + momentum * wide[0] : wide[0];
    return w - learning_rate * direction;
  }
};

}  // namespace dynemb
