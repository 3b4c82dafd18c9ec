// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/initializer.h: the first value of a row, a function of (seed, key, column) and nothing else.
//
// So a row does not depend on when, where or beside which other rows it was inserted.
#pragma once

#include <cstdint>

#include "core/keys.h"
#include "core/macros.h"
#include "core/normal.h"
#include "core/philox.h"
#include "core/rounded.h"
#include "core/value_type.h"

namespace dynemb {

enum class InitializerKind : int32_t {
  kConstant = 0,
  kUniform = 1,
  kNormal = 2,
  kDebug = 3,
  kGiven = 4
};

// What the six parameters mean:
//   kConstant  value
//   kUniform   lower, upper - lower
//   kNormal    mean, standard deviation, P(lower), P(upper) - P(lower), lower, upper; truncated to
//              [lower, upper], which are infinite for the plain normal distribution
//   kDebug     none: every column is key mod 100000
//   kGiven     none: the caller that stores the keys writes the rows, right after the call
constexpr int kInitializerParameters = 6;

// Whether initial rows depend on the table's seed; where they do not, no operation reads it.
DYNEMB_HD constexpr bool is_seeded(InitializerKind kind) {
  return kind == InitializerKind::kUniform || kind == InitializerKind::kNormal;
}

struct Initializer {
  InitializerKind kind;
  float parameter[kInitializerParameters];
};

// Whether a new row gets values from the call that stores its key.
DYNEMB_HD constexpr bool writes_rows(InitializerKind kind) {
  return kind != InitializerKind::kGiven;
}

// The number in every column of a row that is not drawn.
DYNEMB_HD float constant_value(Initializer const& initializer, Key key) {
  if (initializer.kind == InitializerKind::kConstant) return initializer.parameter[0];
#ifdef __CUDA_ARCH__
  asm volatile("" : "+l"(key));  // or the remainder is computed for rows of every kind
#endif
  return static_cast<float>(key % 100000u);
}

DYNEMB_HD float uniform_value(float const* p, uint32_t random) {
  auto const u = rounded_multiply(static_cast<float>(random >> 8), 5.9604644775390625e-8f);
  return rounded_multiply_add(p[1], u, p[0]);
}

DYNEMB_HD float normal_value(float const* p, uint32_t random) {
  // u lies half a step above a multiple of 2^-23, so it is never 0 and never 1.
  auto const u = rounded_multiply(static_cast<float>(random >> 9) + 0.5f, 1.1920928955078125e-7f);
  auto const z = normal_quantile(rounded_multiply_add(p[3], u, p[2]));
  auto const value = rounded_multiply_add(p[1], z, p[0]);
  return value < p[4] ? p[4] : value > p[5] ? p[5] : value;
}

// Makes four columns of random bits.
DYNEMB_HD void random_values(Initializer const& initializer, PhiloxBlock const& random,
                             float (&values)[4]) {
  auto const* const p = initializer.parameter;
  if (initializer.kind == InitializerKind::kUniform) {
    for (int i = 0; i < 4; ++i) values[i] = uniform_value(p, random.word[i]);
  } else {
    // Four times a hundred instructions are too many, so this loop stays one; words that turn need
    // no index.
    auto turning = random;
    DYNEMB_ROLLED
    for (int i = 0; i < 4; ++i) {
      auto const& w = turning.word;
      turning = {{w[1], w[2], w[3], float_bits(normal_value(p, w[0]))}};
    }
    for (int i = 0; i < 4; ++i) values[i] = float_from_bits(turning.word[i]);
  }
}

// All initial rows of a table share this.
struct RowSeed {
  uint64_t seed;
  uint32_t first_quad;  // of the columns that are here; the table's other columns are elsewhere
};

// Columns 4 * quad to 4 * quad + 3 of the rows of `keys`, counted from the first one that is here.
template <int kRows>
DYNEMB_HD void initial_values(Initializer const& initializer, RowSeed const& seed,
                              Key const (&keys)[kRows], uint32_t quad, float (&values)[kRows][4]) {
  if (!is_seeded(initializer.kind)) {
    for (int r = 0; r < kRows; ++r) {
      auto const value = constant_value(initializer, keys[r]);
      for (auto& each : values[r]) each = value;
    }
    return;
  }
  PhiloxBlock blocks[kRows];
  for (int r = 0; r < kRows; ++r) {
    auto const low = static_cast<uint32_t>(keys[r]), high = static_cast<uint32_t>(keys[r] >> 32);
    blocks[r] = {{low, high, seed.first_quad + quad, 0u}};
  }
  philox(blocks, static_cast<uint32_t>(seed.seed), static_cast<uint32_t>(seed.seed >> 32));
  for (int r = 0; r < kRows; ++r) random_values(initializer, blocks[r], values[r]);
}

}  // namespace dynemb
