// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/normal.h: the inverse of the normal distribution function, bit for bit the same everywhere.
//
// Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution", Applied Statistics
// 37 (1988), routine PPND7: seven decimal digits, which is what float32 holds.
#pragma once

#include "core/macros.h"
#include "core/rounded.h"
#include "core/value_type.h"

namespace dynemb {

// Returns the natural logarithm of a positive, normal float32: log(2^e m) = e log 2 + 2
// atanh((m-1)/(m+1)).
DYNEMB_HD float rounded_log(float x) {
  auto const bits = float_bits(x);
  auto exponent = static_cast<int>(bits >> 23) - 127;
  auto mantissa = float_from_bits((bits & 0x007fffffu) | 0x3f800000u);
  if (mantissa > 1.41421354f) {
    mantissa = rounded_multiply(mantissa, 0.5f);
    ++exponent;
  }
  auto const s = rounded_divide(rounded_add(mantissa, -1.0f), rounded_add(mantissa, 1.0f));
  auto const z = rounded_multiply(s, s);
  auto series = rounded_multiply_add(z, 0.11111111f, 0.14285715f);
  series = rounded_multiply_add(series, z, 0.2f);
  series = rounded_multiply_add(series, z, 0.33333334f);
  series = rounded_multiply_add(series, z, 1.0f);
  auto const log_mantissa = rounded_multiply(rounded_multiply(2.0f, s), series);
  return rounded_multiply_add(static_cast<float>(exponent), 0.69314718f, log_mantissa);
}

DYNEMB_HD float cubic(float x, float c3, float c2, float c1, float c0) {
  auto value = rounded_multiply_add(c3, x, c2);
  value = rounded_multiply_add(value, x, c1);
  return rounded_multiply_add(value, x, c0);
}

// Returns the z with P(Z <= z) = p, for 0 < p < 1.
DYNEMB_HD float normal_quantile(float p) {
  auto const q = rounded_add(p, -0.5f);
  if (q >= -0.425f && q <= 0.425f) {
    auto const r = rounded_add(0.180625f, -rounded_multiply(q, q));
    auto const above = cubic(r, 59.109374720f, 159.29113202f, 50.434271938f, 3.3871327179f);
    auto const below = cubic(r, 67.187563600f, 78.757757664f, 17.895169469f, 1.0f);
    return rounded_divide(rounded_multiply(q, above), below);
  }
  auto const tail = q < 0.0f ? p : rounded_add(1.0f, -p);
  auto r = rounded_sqrt(-rounded_log(tail));
  float above, below;
  if (r <= 5.0f) {
    r = rounded_add(r, -1.6f);
    above = cubic(r, 0.17023821103f, 1.3067284816f, 2.7568153900f, 1.4234372777f);
    below = cubic(r, 0.0f, 0.12021132975f, 0.73700164250f, 1.0f);
  } else {
    r = rounded_add(r, -5.0f);
    above = cubic(r, 0.017337203997f, 0.42868294337f, 3.0812263860f, 6.6579051150f);
    below = cubic(r, 0.0f, 0.012258202635f, 0.24197894225f, 1.0f);
  }
  auto const z = rounded_divide(above, below);
  return q < 0.0f ? -z : z;
}

}  // namespace dynemb
