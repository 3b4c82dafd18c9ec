// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/rounded.h: float32 arithmetic in which every operation is rounded by itself.
//
// Initial rows must have the same bits on every platform, so a compiler must not contract a
// product and a sum into one fused operation. Host code is built with -ffp-contract=off.
#pragma once

#include "core/macros.h"

namespace dynemb {

DYNEMB_HD float rounded_add(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

DYNEMB_HD float rounded_multiply(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

// a * b + c with two roundings.
DYNEMB_HD float rounded_multiply_add(float a, float b, float c) {
  return rounded_add(rounded_multiply(a, b), c);
}

DYNEMB_HD float rounded_divide(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

DYNEMB_HD float rounded_sqrt(float a) {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(a);
#else
  return __builtin_sqrtf(a);
#endif
}

}  // namespace dynemb
