// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/grid/packed_format.cuh: four columns of a packed row, read by one lane (core/packed_row.h).
//
// A lane loads four codes as one word, or two bytes where a code has 4 bits. All lanes of a row
// load its scale: that is one access, next to the codes.
#pragma once

#include <cstdint>

#include "core/packed_row.h"
#include "core/table_ref.h"
#include "cuda/grid/row_format.cuh"

namespace dynemb::cuda {

template <RowCode kCode>
struct Packed {
  ValueType type;  // that initial rows are rounded to
};

template <RowCode kCode>
constexpr bool kIsPacked<Packed<kCode>> = true;

template <RowCode kCode>
__device__ __forceinline__ uint32_t stored_row_bytes(Packed<kCode> /*format*/, int32_t dim) {
  return static_cast<uint32_t>(packed_row_bytes(kCode, dim));
}

template <RowCode kCode>
__device__ __forceinline__ char const* stored_column(Packed<kCode> /*format*/, void const* rows,
                                                     int32_t column) {
  return static_cast<char const*>(rows) + kScaleBytes + code_offset(kCode, column);
}

// Bytes from the codes of one column to those of a later one.
template <RowCode kCode>
__device__ __forceinline__ int32_t code_bytes(Packed<kCode> /*format*/, int32_t columns) {
  return code_offset(kCode, columns);
}

// Loads the scale of a row; 0 unless `wanted`. There is no branch, as in load_quad_if.
__device__ __forceinline__ float load_scale_if(bool wanted, void const* rows, int32_t row,
                                               uint32_t row_bytes) {
  auto const* const from =
      nth_row(static_cast<char const*>(rows), static_cast<uint32_t>(row), row_bytes);
  auto scale = 0.0f;
#ifdef __CUDA_ARCH__
  asm volatile("{\n .reg .pred p;\n setp.ne.s32 p, %2, 0;\n @p ld.global.f32 %0, [%1];\n}"
               : "+f"(scale)
               : "l"(from), "r"(static_cast<int>(wanted)));
#else
  if (wanted) scale = *reinterpret_cast<float const*>(from);
#endif
  return scale;
}

// Codes of the four columns from `row` on, which stored_column() gives, if `wanted`, else zeros.
template <RowCode kCode>
__device__ __forceinline__ RawQuad load_quad_if(bool wanted, Packed<kCode> /*format*/,
                                                char const* row, int32_t /*column*/,
                                                int32_t /*dim*/) {
  RawQuad quad{{0, 0, 0, 0}};
#ifdef __CUDA_ARCH__
  auto const predicate = static_cast<int>(wanted);
  if constexpr (kCode == RowCode::kInt4) {
    asm volatile(
        "{\n .reg .pred p;\n .reg .u16 h;\n setp.ne.s32 p, %2, 0;\n mov.u16 h, 0;\n"
        " @p ld.global.u16 h, [%1];\n cvt.u32.u16 %0, h;\n}"
        : "=r"(quad.word[0])
        : "l"(row), "r"(predicate));
  } else {
    asm volatile("{\n .reg .pred p;\n setp.ne.s32 p, %2, 0;\n @p ld.global.u32 %0, [%1];\n}"
                 : "+r"(quad.word[0])
                 : "l"(row), "r"(predicate));
  }
#else
  if (!wanted) return quad;
  if constexpr (kCode == RowCode::kInt4) {
    quad.word[0] = *reinterpret_cast<uint16_t const*>(row);
  } else {
    quad.word[0] = *reinterpret_cast<uint32_t const*>(row);
  }
#endif
  return quad;
}

// A code as the low bits of 2^23, a float whose unit is 1: no conversion, of which a multiprocessor
// does few at a time. The difference is exact.
template <RowCode kCode>
__device__ __forceinline__ float4 floats_of_integers(uint32_t codes) {
  constexpr float kWhole = 8388608.0f;  // 2^23
  constexpr uint32_t kWholeBits = 0x4b000000u;
#ifdef __CUDA_ARCH__
  if constexpr (kCode == RowCode::kInt8) {
    constexpr float kZero = kWhole + 128.0f;
    auto const biased = codes ^ 0x80808080u;
    return {__uint_as_float(__byte_perm(biased, kWholeBits, 0x7440)) - kZero,
            __uint_as_float(__byte_perm(biased, kWholeBits, 0x7441)) - kZero,
            __uint_as_float(__byte_perm(biased, kWholeBits, 0x7442)) - kZero,
            __uint_as_float(__byte_perm(biased, kWholeBits, 0x7443)) - kZero};
  } else {
    constexpr float kZero = kWhole + 8.0f;
    return {__uint_as_float((codes & 15u) | kWholeBits) - kZero,
            __uint_as_float((codes >> 4 & 15u) | kWholeBits) - kZero,
            __uint_as_float((codes >> 8 & 15u) | kWholeBits) - kZero,
            __uint_as_float((codes >> 12 & 15u) | kWholeBits) - kZero};
  }
#else
  (void)kWhole, (void)kWholeBits;
  constexpr int kBits = kCode == RowCode::kInt4 ? 4 : 8;
  return {code_value<kCode>(codes), code_value<kCode>(codes >> kBits),
          code_value<kCode>(codes >> 2 * kBits), code_value<kCode>(codes >> 3 * kBits)};
#endif
}

// The scale is not applied here.
template <RowCode kCode>
__device__ __forceinline__ float4 to_floats(Packed<kCode> /*format*/, RawQuad const& quad) {
  auto const codes = quad.word[0];
  if constexpr (kCode != RowCode::kFloat8) return floats_of_integers<kCode>(codes);
  return {code_value<kCode>(codes), code_value<kCode>(codes >> 8), code_value<kCode>(codes >> 16),
          code_value<kCode>(codes >> 24)};
}

// The formats of a call whose tables all have one code. Rows that are returned may have any: they
// are stored once for many that are read, or at the speed of memory.
template <RowCode kCode>
struct PackedFormats {
  static constexpr bool kKnown = false;
  static constexpr bool kPacked = true;

  __device__ static Packed<kCode> stored_format(TableRef const& table) {
    return {table.value_type};
  }
};

}  // namespace dynemb::cuda
