// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/optimizers/catch_up.h: optimizers that make up, in the update of a row, for the updates of
// the table that the row was absent from.
//
// Each row keeps the number of its last update. A learning rate of today stands for those that were
// missed.
#pragma once

#include "core/optimizers/adam.h"
#include "core/optimizers/functor.h"
#include "core/optimizers/momentum.h"
#include "core/optimizers/rmsprop.h"
#include "core/optimizers/rowwise_adagrad.h"

namespace dynemb {

// Decays the row alone before Base's update, as FBGEMM's DECOUPLE_GLOBAL. kDecay is the place of
// the weight decay among Base's hyper-parameters. After them come `floor` and `start`: updates of
// the table before that one make up for nothing, and are no row's last.
template <class Base, int kDecay>
struct DecayCaughtUp : Base {
  static constexpr int kInts = 1;  // last

  float log_keep, floor;
  uint32_t step;
  bool catches_up;

  template <class Kind>
  DYNEMB_HD static Kind prepare_as(float const* hyper, uint64_t step) {
    // Kind has those of Base before its own two. nvcc 12.4 does not know here how many Base has.
    constexpr auto kFloor = sizeof(Kind::kHyper) / sizeof(Kind::kHyper[0]) - 2;
    Kind result{};
    static_cast<Base&>(result) = Base::prepare(hyper, step);
    auto const keep = 1.0 - static_cast<double>(hyper[0]) * hyper[kDecay];
    result.log_keep = log_of(keep);
    result.catches_up = static_cast<double>(step) >= static_cast<double>(hyper[kFloor + 1]);
    result.floor = hyper[kFloor];
    result.step = static_cast<uint32_t>(step);
    return result;
  }

  DYNEMB_HD void begin(RowNumbers& row, RowFactors& f) const {
    f.of[3] = 1.0f;
    if (!catches_up) return;
    auto const kept = power(log_keep, interval_of(row.ints[0], step) - 1);
    f.of[3] = kept > floor ? kept : floor;
  }

  template <int k>
  DYNEMB_HD void add(RowFactors const& f, float w, float g, float const* wide,
                     RowSums2& sums) const {
    Base::template add<k>(f, f.of[3] * w, g, wide, sums);
  }

  DYNEMB_HD float update(RowFactors const& f, float w, float g, float* wide) const {
    return Base::update(f, f.of[3] * w, g, wide);
  }
};

struct CaughtUpRowwiseAdagrad : DecayCaughtUp<RowwiseAdagrad, 3> {
  static constexpr char const* kName = "caught_up_rowwise_adagrad";
  static constexpr char const* kHyper[] = {"learning_rate", "eps",   "l2",   "weight_decay",
                                           "max_norm",      "floor", "start"};

  DYNEMB_HD static CaughtUpRowwiseAdagrad prepare(float const* hyper, uint64_t step) {
    return prepare_as<CaughtUpRowwiseAdagrad>(hyper, step);
  }
};

struct CaughtUpAdam : DecayCaughtUp<Adam, 4> {
  static constexpr char const* kName = "caught_up_adam";
  static constexpr char const* kHyper[] = {"learning_rate", "eps",      "b1",    "b2",
                                           "weight_decay",  "corrects", "floor", "start"};

  DYNEMB_HD static CaughtUpAdam prepare(float const* hyper, uint64_t step) {
    return prepare_as<CaughtUpAdam>(hyper, step);
  }
};

// The steps that the first moment would have made too, as if the root had been today's:
// OneEmbedding and Caffe2 (SmartDecaySparseAdam). No bias correction.
struct SmartAdam : NoStages {
  static constexpr char const* kName = "smart_adam";
  static constexpr char const* kHyper[] = {"learning_rate", "eps", "b1", "b2", "weight_decay"};
  static constexpr int kWide = 2;  // mu, nu
  static constexpr int kInts = 1;  // last

  float learning_rate, epsilon, b1, b2, weight_decay;
  float log_b1, log_b2, log_keep;
  uint32_t step;

  DYNEMB_HD static SmartAdam prepare(float const* hyper, uint64_t step) {
    auto const keep = 1.0 - static_cast<double>(hyper[0]) * hyper[4];
    return {{},
            hyper[0],
            safe_epsilon(hyper[1]),
            hyper[2],
            hyper[3],
            hyper[4],
            log_of(hyper[2]),
            log_of(hyper[3]),
            log_of(keep),
            static_cast<uint32_t>(step)};
  }

  DYNEMB_HD void begin(RowNumbers& row, RowFactors& f) const {
    auto const missed = interval_of(row.ints[0], step) - 1;
    f.of[0] = power(log_b1, missed);
    f.of[1] = power(log_b2, missed);
    f.of[2] = approximate_quotient(b1 * (1.0f - f.of[0]), 1.0f - b1);
    f.of[3] = power(log_keep, missed);
  }

  DYNEMB_HD float update(RowFactors const& f, float w, float g, float* wide) const {
    auto const late = f.of[2] * wide[0], kept = f.of[3] * w;
    wide[0] = b1 * (f.of[0] * wide[0]) + (1.0f - b1) * g;
    wide[1] = b2 * (f.of[1] * wide[1]) + (1.0f - b2) * g * g;
    auto const root = approximate_root(wide[1]) + epsilon;
    auto const direction = approximate_quotient(wide[0] + late, root);
    return kept - learning_rate * (direction + weight_decay * kept);
  }
};

// Exact: what zero gradients would have done.
struct SmartMomentum : NoStages {
  static constexpr char const* kName = "smart_momentum";
  static constexpr char const* const (&kHyper)[3] = Momentum::kHyper;
  static constexpr int kWide = 1;  // trace
  static constexpr int kInts = 1;  // last

  Momentum own;
  float log_momentum;
  uint32_t step;

  DYNEMB_HD static SmartMomentum prepare(float const* hyper, uint64_t step) {
    return {{}, Momentum::prepare(hyper, step), log_of(hyper[1]), static_cast<uint32_t>(step)};
  }

  DYNEMB_HD void begin(RowNumbers& row, RowFactors& f) const {
    f.of[0] = power(log_momentum, interval_of(row.ints[0], step) - 1);
    auto const ahead = own.nesterov != 0.0f ? own.momentum : 1.0f;
    auto const sum = approximate_quotient(1.0f - f.of[0], 1.0f - own.momentum);
    f.of[1] = own.learning_rate * ahead * own.momentum * sum;
  }

  DYNEMB_HD float update(RowFactors const& f, float w, float g, float* wide) const {
    auto const late = f.of[1] * wide[0];
    wide[0] *= f.of[0];
    return own.update(f, w - late, g, wide);
  }
};

// A row shrinks by the updates since its last one: FBGEMM's ROWWISE_RMSPROP_AR.
struct ShrinkingRowwiseRmsprop : RowwiseRmsprop {
  static constexpr char const* kName = "shrinking_rowwise_rmsprop";
  static constexpr char const* kHyper[] = {"learning_rate", "decay", "eps", "ar_alpha",
                                           "min_shrinkage"};
  static constexpr int kInts = 1;  // last

  float ar_alpha, min_shrinkage;
  uint32_t step;

  DYNEMB_HD static ShrinkingRowwiseRmsprop prepare(float const* hyper, uint64_t step) {
    return {RowwiseRmsprop::prepare(hyper, step), hyper[3], hyper[4], static_cast<uint32_t>(step)};
  }

  DYNEMB_HD void begin(RowNumbers& row, RowFactors& f) const {
    auto const interval = static_cast<float>(interval_of(row.ints[0], step));
    auto const kept = 1.0f - learning_rate * ar_alpha * interval;
    f.of[3] = kept > min_shrinkage ? kept : min_shrinkage;
  }

  DYNEMB_HD float update(RowFactors const& f, float w, float g, float* wide) const {
    return RowwiseRmsprop::update(f, f.of[3] * w, g, wide);
  }
};

}  // namespace dynemb
