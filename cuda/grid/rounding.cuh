// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/grid/rounding.cuh: four columns of a row are rounded stochastically to what 16 bits hold; to
// store them is exact then.
#pragma once

#include <algorithm>
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

// The largest magnitude to which 16 random bits can be added without a carry into infinity.
constexpr uint32_t kLargestRounded = 0x7f7f0000u;

// Returns the largest magnitude of four numbers; NaN if one is NaN.
__device__ __forceinline__ float largest_magnitude(float4 const& v) {
#ifdef __CUDA_ARCH__
  float largest;
  asm("{\n .reg .f32 a, b, c, d;\n abs.f32 a, %1;\n abs.f32 b, %2;\n abs.f32 c, %3;\n"
      " abs.f32 d, %4;\n max.NaN.f32 a, a, b;\n max.NaN.f32 c, c, d;\n max.NaN.f32 %0, a, c;\n}"
      : "=f"(largest)
      : "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w));
  return largest;
#else
  uint32_t largest = 0;  // the bits of a NaN are above those of all numbers
  for (auto const value : {v.x, v.y, v.z, v.w}) {
    largest = std::max(largest, float_bits(value) & 0x7fffffffu);
  }
  return float_from_bits(largest);
#endif
}

// Rounds to the words that are stored. Added to all of its bits, the random ones round a finite
// number as they would its magnitude: a carry out of it would mean infinity. So large a number, and
// any that is not finite, is rare, and takes the longer way.
__device__ __forceinline__ uint2 rounded_halves(RoundingSeed const& seed, Key key, uint32_t quad,
                                                float4 const& v) {
  uint32_t r[4];
  rounding_bits(seed, key, quad, r);
  float const values[4] = {v.x, v.y, v.z, v.w};
  uint32_t sums[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = float_bits(values[i]) + r[i];
  if (!(largest_magnitude(v) <= float_from_bits(kLargestRounded))) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      BFloat16 half;
      round_stochastically(values[i], r[i], &half);
      sums[i] = uint32_t{half.bits} << 16;
    }
  }
  return {sums[0] >> 16 | (sums[1] & 0xffff0000u), sums[2] >> 16 | (sums[3] & 0xffff0000u)};
}

// This is one function, not a part of each optimizer's loop. Precondition: type is one of 16 bits.
inline __device__ __noinline__ float4 rounded_quad(RoundingSeed const& seed, Key key, uint32_t quad,
                                                   ValueType type, float4 v) {
  if (type == ValueType::kBFloat16) return rounded_quad<BFloat16>(seed, key, quad, v);
  return rounded_quad<Float16>(seed, key, quad, v);
}

}  // namespace dynemb::cuda
