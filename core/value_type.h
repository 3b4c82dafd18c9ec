// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/value_type.h: the element types of rows, and their conversion to and from float32.
//
// Arithmetic is always float32. Rounding to 16 bits is to nearest, ties to even, on both sides.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/macros.h"

namespace dynemb {

enum class ValueType : int32_t { kFloat32 = 0, kBFloat16 = 1, kFloat16 = 2 };

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

DYNEMB_HD uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

DYNEMB_HD float float_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

DYNEMB_HD float to_float(float value) { return value; }

DYNEMB_HD float to_float(BFloat16 value) { return float_from_bits(uint32_t{value.bits} << 16); }

DYNEMB_HD float to_float(Float16 value) {
#ifdef __CUDA_ARCH__
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
#else
  _Float16 half;
  memcpy(&half, &value.bits, sizeof(half));
  return static_cast<float>(half);
#endif
}

DYNEMB_HD void from_float(float value, float* result) { *result = value; }

DYNEMB_HD void from_float(float value, BFloat16* result) {
  auto const bits = float_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {  // NaN: rounding up could turn it into infinity
    result->bits = static_cast<uint16_t>((bits >> 16) | 0x40u);
    return;
  }
  result->bits = static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

DYNEMB_HD void from_float(float value, Float16* result) {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result->bits) : "f"(value));
#else
  auto const half = static_cast<_Float16>(value);
  memcpy(&result->bits, &half, sizeof(half));
#endif
}

// Calls `function(V{})` with the C++ type V that `type` names.
template <class Function>
inline void with_value_type(ValueType type, Function const& function) {
  switch (type) {
    case ValueType::kFloat32:
      return function(float{});
    case ValueType::kBFloat16:
      return function(BFloat16{});
    case ValueType::kFloat16:
      return function(Float16{});
  }
}

}  // namespace dynemb
