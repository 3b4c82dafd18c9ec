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

namespace dynemb {

enum class InitializerKind : int32_t { kConstant = 0, kUniform = 1, kNormal = 2, kDebug = 3 };

// What the six parameters mean:
//   kConstant  value
//   kUniform   lower, upper - lower
//   kNormal    mean, standard deviation, P(lower), P(upper) - P(lower), lower, upper; truncated to
//              [lower, upper], which are infinite for the plain normal distribution
//   kDebug     none: every column is key mod 100000
constexpr int kInitializerParameters = 6;

// Whether initial rows depend on the table's seed; where they do not, nobody reads it.
DYNEMB_HD constexpr bool is_seeded(InitializerKind kind) {
  return kind == InitializerKind::kUniform || kind == InitializerKind::kNormal;
}

struct Initializer {
  InitializerKind kind;
  float parameter[kInitializerParameters];
};

// From 32 random bits to one column.
DYNEMB_HD float initial_value(Initializer const& initializer, uint32_t random) {
  auto const* const p = initializer.parameter;
  if (initializer.kind == InitializerKind::kUniform) {
    auto const u = rounded_multiply(static_cast<float>(random >> 8), 5.9604644775390625e-8f);
    return rounded_multiply_add(p[1], u, p[0]);
  }
  // Half a step above the multiple of 2^-23: never 0 and never 1.
  auto const u = rounded_multiply(static_cast<float>(random >> 9) + 0.5f, 1.1920928955078125e-7f);
  auto const z = normal_quantile(rounded_multiply_add(p[3], u, p[2]));
  auto const value = rounded_multiply_add(p[1], z, p[0]);
  return value < p[4] ? p[4] : value > p[5] ? p[5] : value;
}

// What the initial rows of a table share.
struct RowSeed {
  uint64_t seed;
  uint32_t first_quad;  // of the columns that are here; the table's other columns are elsewhere
};

// Columns 4 * quad to 4 * quad + 3 of the row of `key`, counted from the first one that is here.
DYNEMB_HD void initial_values(Initializer const& initializer, RowSeed const& seed, Key key,
                              uint32_t quad, float (&values)[4]) {
  if (!is_seeded(initializer.kind)) {
    auto const value = initializer.kind == InitializerKind::kConstant
                           ? initializer.parameter[0]
                           : static_cast<float>(key % 100000u);
    for (auto& each : values) each = value;
    return;
  }
  auto const block = philox(
      {{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32), seed.first_quad + quad, 0u}},
      static_cast<uint32_t>(seed.seed), static_cast<uint32_t>(seed.seed >> 32));
  for (int i = 0; i < 4; ++i) values[i] = initial_value(initializer, block.word[i]);
}

}  // namespace dynemb
