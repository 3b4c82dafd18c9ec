// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/grid/rounding.cuh: four columns of a row are rounded stochastically to what 16 bits hold; to
// store them is exact then.
#pragma once

#include <cstdint>

#include "core/stochastic.h"
#include "core/value_type.h"

namespace dynemb::cuda {

template <class V>
__device__ __forceinline__ float rounded_to(float value, uint32_t random) {
  V result;
  round_stochastically(value, random, &result);
  return to_float(result);
}

// One function, not a part of each optimizer's loop. Precondition: type is one of 16 bits.
inline __device__ __noinline__ float4 rounded_quad(RoundingSeed const& seed, Key key, uint32_t quad,
                                                   ValueType type, float4 v) {
  uint32_t r[4];
  rounding_bits(seed, key, quad, r);
  if (type == ValueType::kBFloat16) {
    return {rounded_to<BFloat16>(v.x, r[0]), rounded_to<BFloat16>(v.y, r[1]),
            rounded_to<BFloat16>(v.z, r[2]), rounded_to<BFloat16>(v.w, r[3])};
  }
  return {rounded_to<Float16>(v.x, r[0]), rounded_to<Float16>(v.y, r[1]),
          rounded_to<Float16>(v.z, r[2]), rounded_to<Float16>(v.w, r[3])};
}

}  // namespace dynemb::cuda
