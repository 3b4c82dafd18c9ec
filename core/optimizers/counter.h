// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/optimizers/counter.h: row-wise Adagrad whose weight decay, or step, follows from how often a
// row occurs.
//
// Formulas: FBGEMM, exact_rowwise_adagrad with COUNTER. Where its half-life is below 0, counts
// forget nothing here too.
#pragma once

#include "core/optimizers/functor.h"

namespace dynemb {

struct CounterRowwiseAdagrad : NoStages {
  static constexpr char const* kName = "counter_rowwise_adagrad";
  static constexpr char const* kHyper[] = {
      "learning_rate", "eps",   "weight_decay", "half_life", "counts_forever",
      "mode",          "start", "bound",        "threshold", "max_count"};
  static constexpr int kNumbers = 2;  // sum_of_squares, count
  static constexpr int kInts = 1;     // last

  // Kinds of weight decay and of the step are passed as one number: decay + 8 * rate.
  enum Decay { kNoDecay = 0, kL2, kDecoupled, kRoot, kCapped };
  enum Rate { kEqual = 0, kIncrease, kDecrease, kSgd };

  float learning_rate, epsilon, weight_decay, half_life, log_half, counts_forever;
  float bound, threshold, max_count, since_start;
  int32_t decay, rate;
  uint32_t step;

  DYNEMB_HD static CounterRowwiseAdagrad prepare(float const* hyper, uint64_t step) {
    auto const log_half = hyper[3] > 0.0f ? -0.6931471805599453 / hyper[3] : 0.0;
    auto const mode = static_cast<int32_t>(hyper[5]);
    auto const start = static_cast<double>(hyper[6]);
    auto const since = static_cast<float>(static_cast<double>(step) - start);
    return {{},
            hyper[0],
            safe_epsilon(hyper[1]),
            hyper[2],
            hyper[3],
            static_cast<float>(log_half),
            hyper[4],
            hyper[7],
            hyper[8],
            hyper[9],
            start > 0.0 ? since : static_cast<float>(step) + 1.0f,
            mode % 8,
            mode / 8,
            static_cast<uint32_t>(step)};
  }

  DYNEMB_HD int stages() const { return 1; }

  DYNEMB_HD void begin(RowNumbers& row, RowFactors& f) const {
    auto const interval = interval_of(row.ints[0], step);
    auto const kept = half_life > 0.0f ? power(log_half, interval) : counts_forever;
    row.of[1] = 1.0f + kept * row.of[1];
    f.of[2] = static_cast<float>(interval);
  }

  template <int k>
  DYNEMB_HD void add(RowFactors const&, float w, float g, float const*, RowSums2& sums) const {
    auto const x = decay == kL2 ? g + weight_decay * w : g;
    sums.a += x * x;
  }

  template <int k>
  DYNEMB_HD void finish(RowSums2 const& sums, float dim, RowNumbers& row, RowFactors& f) const {
    row.of[0] += approximate_quotient(sums.a, dim);
    auto const root = approximate_root(row.of[0]) + epsilon;
    auto const plain = approximate_quotient(learning_rate, root);
    f.of[0] = plain;
    f.of[1] = 1.0f;
    if (since_start <= 0.0f) return;
    if (row.of[1] > threshold) f.of[0] = step_of(row.of[1], plain);
    decay_row(row.of[1], plain, root, f);
  }

  DYNEMB_HD float update(RowFactors const& f, float w, float g, float*) const {
    return f.of[1] * w - f.of[0] * g;
  }

  // Of a row that occurs more often than the threshold.
  DYNEMB_HD float step_of(float count, float plain) const {
    if (rate == kIncrease) {
      auto const factor = powf(approximate_quotient(max_count, count + 1.0f), bound);
      return plain * (factor > 10.0f ? 10.0f : factor < 1.0f ? 1.0f : factor);
    }
    if (rate == kDecrease) {
      auto const factor = powf(approximate_quotient(count + 1.0f, max_count), bound);
      return plain * (factor < 0.1f ? 0.1f : factor > 1.0f ? 1.0f : factor);
    }
    if (rate == kSgd) {
      return approximate_quotient(learning_rate, approximate_root(bound * count) + epsilon);
    }
    return plain;
  }

  DYNEMB_HD void decay_row(float count, float plain, float root, RowFactors& f) const {
    auto const share = approximate_quotient(half_life, count) * weight_decay;
    if (decay == kL2) f.of[1] = 1.0f - share * plain;
    if (decay == kDecoupled) f.of[1] = 1.0f - share * learning_rate;
    if (decay != kRoot && decay != kCapped) return;
    auto const capped = learning_rate * count < bound ? learning_rate * count : bound;
    f.of[0] = decay == kRoot ? plain * approximate_root(count) : approximate_quotient(capped, root);
    auto const kept = 1.0f - weight_decay * learning_rate;
    auto const missed = (f.of[2] < since_start ? f.of[2] : since_start) - 1.0f;
    auto const lazy = missed > 0.0f ? powf(kept, missed) : 1.0f;
    f.of[0] *= lazy;
    f.of[1] = kept * lazy;
  }
};

}  // namespace dynemb
