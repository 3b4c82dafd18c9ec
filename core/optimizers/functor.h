// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/optimizers/functor.h: what the struct of one optimizer has, and what the loops hand to it.
//
//   kName, kHyper        its name, and those of its hyper-parameters in the order of the operand
//   kWide                states of a row with a number for each column
//   kNumbers, kInts      states of one number, float32 and int32; they follow in this order
//   prepare(hyper, step) the struct, once a table and update; the first update is step 1
//   begin(row, f)        once a row, before the sums
//   stages()             passes over the row that sums need: 0 to 2
//   kSums                sums of such a pass: 1, which is `a`, or 2
//   add<k>(...)          what one column adds to the sums of pass k
//   finish<k>(...)       once a row: what follows from the sums
//   update(...)          one column: changes its states and returns the new value
//
// A struct is plain numbers: a GPU keeps it in shared memory. Weight decay, clipping and rounding
// that every optimizer may have are done by the loops.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/approximate.h"
#include "core/macros.h"

namespace dynemb {

constexpr int kMaxHyper = 10;  // of one optimizer

// The states of a row that are one number each.
struct RowNumbers {
  float of[2];
  uint32_t ints[1];
};

// What a pass over the columns of a row adds up.
struct RowSums2 {
  float a, b;
};

// What was found for a whole row, for its columns.
struct RowFactors {
  float of[4];
};

// What most optimizers do not need.
struct NoStages {
  static constexpr int kWide = 0;
  static constexpr int kNumbers = 0;
  static constexpr int kInts = 0;
  static constexpr int kSums = 1;
  DYNEMB_HD int stages() const { return 0; }
  DYNEMB_HD void begin(RowNumbers&, RowFactors&) const {}
  template <int k>
  DYNEMB_HD void add(RowFactors const&, float, float, float const*, RowSums2&) const {}
  template <int k>
  DYNEMB_HD void finish(RowSums2 const&, float, RowNumbers&, RowFactors&) const {}
};

// This is the least epsilon. A zero gradient on a zero state divides zero by epsilon, which must be
// zero, not NaN. It is the root of the least normal float: the square of a smaller gradient may be
// flushed to zero, and the quotient then stays near one. Gradients above 2^-39 give the same update
// without it.
constexpr float kLeastEpsilon = 0x1p-63f;

DYNEMB_HD float safe_epsilon(float epsilon) {
  return epsilon > kLeastEpsilon ? epsilon : kLeastEpsilon;  // NaN too becomes the least
}

// 1 / (1 - beta^t), in double: the difference loses most of its digits if beta is near one.
DYNEMB_HD float bias_correction(float beta, uint64_t t) {
  return static_cast<float>(1.0 / (1.0 - pow(static_cast<double>(beta), static_cast<double>(t))));
}

// The natural logarithm of a decay, for `power`; 0 and less give 0 as their powers.
DYNEMB_HD float log_of(double decay) { return static_cast<float>(log(decay > 0.0 ? decay : 0.0)); }

// Returns the decay to the power of `count`.
DYNEMB_HD float power(float log_of_decay, uint32_t count) {
  return count == 0 ? 1.0f : expf(static_cast<float>(count) * log_of_decay);
}

// Returns the updates of the table from the row's last one to this one; 1 for a row without an
// update. `last` becomes this one, `step`. 32 bits of both: differences hold when they wrap.
DYNEMB_HD uint32_t interval_of(uint32_t& last, uint32_t step) {
  auto const interval = last == 0 || step == last ? 1 : step - last;
  last = step;
  return interval;
}

// The ratio of two norms; 1 where it is not defined, as in optax.scale_by_trust_ratio.
DYNEMB_HD float trust_ratio(float w_squares, float r_squares) {
  if (!(w_squares > 0.0f) || !(r_squares > 0.0f)) return 1.0f;
  return approximate_quotient(approximate_root(w_squares), approximate_root(r_squares));
}

// The moments of Adam and its kin: each with its decay, and 1 - decay rounded once.
struct Moments {
  float b1, b2;
  float correction1, correction2;

  DYNEMB_HD float first(float mu, float g) const { return b1 * mu + (1.0f - b1) * g; }
  DYNEMB_HD float second(float nu, float g) const { return b2 * nu + (1.0f - b2) * g * g; }
  DYNEMB_HD float second_of_mean(float nu, float square_mean) const {
    return b2 * nu + (1.0f - b2) * square_mean;
  }
};

// `corrects` is 0 where the moments are used as they are.
DYNEMB_HD Moments moments_of(float b1, float b2, float corrects, uint64_t step) {
  if (corrects == 0.0f) return {b1, b2, 1.0f, 1.0f};
  return {b1, b2, bias_correction(b1, step), bias_correction(b2, step)};
}

}  // namespace dynemb
