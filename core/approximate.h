// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/approximate.h: float32 quotients and roots that may be two units in the last place off.
//
// A GPU rounds them correctly by ten instructions and a branch each; within two units they are one
// or two. The steps of an optimizer need no more: float32 sums of gradients are further off.
#pragma once

#include <cmath>

#include "core/macros.h"

namespace dynemb {

DYNEMB_HD float approximate_quotient(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fdividef(a, b);
#else
  return a / b;
#endif
}

DYNEMB_HD float approximate_root(float a) {
#ifdef __CUDA_ARCH__
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(a));
  return root;
#else
  return sqrtf(a);
#endif
}

}  // namespace dynemb
