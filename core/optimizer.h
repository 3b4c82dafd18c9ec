// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/optimizer.h: one update of one row, by the sum of its gradients over the batch: the four
// optimizers that have loops of their own. All others have their loops in core/optimizers/.
//
// Formulas: FBGEMM, fbgemm_gpu/codegen/genscript/optimizers.py (exact_sgd, exact_adagrad,
// exact_rowwise_adagrad, adam). The epsilon stands outside the square root, weight decay is
// decoupled (Loshchilov and Hutter, arXiv:1711.05101), Adam's bias correction uses the number of
// updates of the table, not of the row.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/approximate.h"
#include "core/macros.h"
#include "core/optimizers/list.h"

namespace dynemb {

constexpr int kNumTunedKinds = 4;  // sgd, adagrad, rowwise_adagrad, adam

// The order of a table's hyper-parameters in the operand of an update.
enum HyperParameter : int32_t {
  kLearningRate = 0,
  kEpsilon,
  kBeta1,
  kBeta2,
  kWeightDecay,
  kNumHyperParameters
};

// Holds the optimizer of one table in one step. The betas enter as 1 - beta, rounded once. Aligned,
// so that a GPU reads it in two loads.
struct alignas(16) Optimizer {
  OptimizerKind kind;
  float learning_rate;
  float epsilon;
  float beta1, beta2;
  float weight_decay;
  float correction1, correction2;  // 1 / (1 - beta^t), t = 1 in the first update
};

DYNEMB_HD Optimizer make_optimizer(OptimizerKind kind, float const* hyper, uint64_t step) {
  Optimizer result{kind,
                   hyper[kLearningRate],
                   safe_epsilon(hyper[kEpsilon]),
                   hyper[kBeta1],
                   hyper[kBeta2],
                   hyper[kWeightDecay],
                   1.0f,
                   1.0f};
  if (kind == OptimizerKind::kAdam) {
    result.correction1 = bias_correction(result.beta1, step);
    result.correction2 = bias_correction(result.beta2, step);
  }
  return result;
}

// Reads the optimizer for the loop of all kinds, which rounds stochastically.
inline AnyOptimizer as_any_optimizer(OptimizerKind kind, float const* hyper, uint64_t step) {
  float numbers[kNumAnyHyper] = {};
  auto* const own = numbers + kNumRowHyper;
  own[0] = hyper[kLearningRate];
  if (kind != OptimizerKind::kSgd) own[1] = hyper[kEpsilon];
  if (kind == OptimizerKind::kAdam) {
    own[2] = hyper[kBeta1];
    own[3] = hyper[kBeta2];
    own[4] = hyper[kWeightDecay];
    own[5] = 1.0f;  // corrects
  }
  return prepare_optimizer(kind, numbers, step);
}

DYNEMB_HD constexpr int num_states(OptimizerKind kind) {
  return kind == OptimizerKind::kSgd ? 0 : kind == OptimizerKind::kAdam ? 2 : 1;
}

DYNEMB_HD constexpr bool is_rowwise(OptimizerKind kind) {
  return kind == OptimizerKind::kRowwiseAdagrad;
}

DYNEMB_HD float sgd(Optimizer const& o, float w, float g) { return w - o.learning_rate * g; }

DYNEMB_HD float adagrad(Optimizer const& o, float w, float g, float* sum_of_squares) {
  *sum_of_squares += g * g;
  return w -
         approximate_quotient(o.learning_rate * g, approximate_root(*sum_of_squares) + o.epsilon);
}

// The factor of g in the row's update; `square_mean` is the mean of g * g over the columns.
DYNEMB_HD float rowwise_adagrad_rate(Optimizer const& o, float square_mean, float* sum_of_squares) {
  *sum_of_squares += square_mean;
  return approximate_quotient(o.learning_rate, approximate_root(*sum_of_squares) + o.epsilon);
}

DYNEMB_HD float adam(Optimizer const& o, float w, float g, float* mu, float* nu) {
  *mu = o.beta1 * *mu + (1.0f - o.beta1) * g;
  *nu = o.beta2 * *nu + (1.0f - o.beta2) * g * g;
  auto const direction =
      approximate_quotient(*mu * o.correction1, approximate_root(*nu * o.correction2) + o.epsilon);
  return w - o.learning_rate * (direction + o.weight_decay * w);
}

}  // namespace dynemb
