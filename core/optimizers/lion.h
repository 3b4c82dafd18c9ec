// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/optimizers/lion.h: Lion (Chen et al., 2023): the sign of a mean of gradients.
#pragma once

#include "core/optimizers/functor.h"

namespace dynemb {

struct Lion : NoStages {
  static constexpr char const* kName = "lion";
  static constexpr char const* kHyper[] = {"learning_rate", "b1", "b2", "weight_decay"};
  static constexpr int kWide = 1;  // mu

  float learning_rate, b1, b2, weight_decay;

  DYNEMB_HD static Lion prepare(float const* hyper, uint64_t) {
    return {{}, hyper[0], hyper[1], hyper[2], hyper[3]};
  }

  DYNEMB_HD float update(RowFactors const&, float w, float g, float* wide) const {
    auto const mean = b1 * wide[0] + (1.0f - b1) * g;
    auto const sign = mean > 0.0f ? 1.0f : mean < 0.0f ? -1.0f : 0.0f;
    wide[0] = b2 * wide[0] + (1.0f - b2) * g;
    return w - learning_rate * (sign + weight_decay * w);
  }
};

}  // namespace dynemb
