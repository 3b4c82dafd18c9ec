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

template <class V>
__device__ __forceinline__ float4 rounded_quad(RoundingSeed const& seed, Key key, uint32_t quad,
                                               float4 const& v) {
  uint32_t r[4];
  rounding_bits(seed, key, quad, r);
  return {rounded_to<V>(v.x, r[0]), rounded_to<V>(v.y, r[1]), rounded_to<V>(v.z, r[2]),
          rounded_to<V>(v.w, r[3])};
}

// One function, not a part of each optimizer's loop. Precondition: type is one of 16 bits.
inline __device__ __noinline__ float4 rounded_quad(RoundingSeed const& seed, Key key, uint32_t quad,
                                                   ValueType type, float4 v) {
  if (type == ValueType::kBFloat16) return rounded_quad<BFloat16>(seed, key, quad, v);
  return rounded_quad<Float16>(seed, key, quad, v);
}

}  // namespace dynemb::cuda
