// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/loops/packed_rows.h: loops over the columns of packed rows (core/packed_row.h).
#pragma once

#include <cstdint>
#include <cstring>

#include "core/packed_row.h"
#include "cpu/loops/row_sums.h"

#ifdef DYNEMB_X86
#include <immintrin.h>
#endif

namespace dynemb::cpu {

namespace detail {

// As many integers as a vector of floats has.
template <Isa isa>
struct IntegerVector {
  typedef int32_t Type __attribute__((vector_size(sizeof(typename FloatVector<isa>::Type))));
};

// Codes become 32-bit integers. Written for each set: a compiler makes one move of each code.
template <Isa isa>
struct Widen {
  using Integers = typename IntegerVector<isa>::Type;
  static constexpr auto kWidth = static_cast<int>(sizeof(Integers) / sizeof(int32_t));

  static void bytes(uint8_t const* from, Integers* to) {
    for (int i = 0; i < kWidth; ++i) (*to)[i] = from[i];
  }
  static void signed_bytes(uint8_t const* from, Integers* to) {
    for (int i = 0; i < kWidth; ++i) (*to)[i] = static_cast<int8_t>(from[i]);
  }
  static void half_bytes(uint8_t const* from, Integers* to) {
    for (int i = 0; i < kWidth; ++i) (*to)[i] = from[i / 2] >> i % 2 * 4 & 15;
  }
};

#ifdef DYNEMB_X86
template <>
struct Widen<Isa::kAvx2> {
  using Integers = IntegerVector<Isa::kAvx2>::Type;

  DYNEMB_AVX2 static void bytes(uint8_t const* from, Integers* to) {
    store(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<__m128i const*>(from))), to);
  }
  DYNEMB_AVX2 static void signed_bytes(uint8_t const* from, Integers* to) {
    store(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<__m128i const*>(from))), to);
  }
  // The upper half of a byte goes to the next 32 bits.
  DYNEMB_AVX2 static void half_bytes(uint8_t const* from, Integers* to) {
    int32_t four;
    memcpy(&four, from, sizeof(four));
    auto const wide = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(four));
    auto const both = _mm256_or_si256(wide, _mm256_slli_epi64(wide, 28));
    store(_mm256_and_si256(both, _mm256_set1_epi32(15)), to);
  }

 private:
  DYNEMB_AVX2 static void store(__m256i from, Integers* to) { memcpy(to, &from, sizeof(from)); }
};

template <>
struct Widen<Isa::kAvx512> {
  using Integers = IntegerVector<Isa::kAvx512>::Type;

  DYNEMB_AVX512 static void bytes(uint8_t const* from, Integers* to) {
    store(_mm512_maskz_cvtepu8_epi32(kAll16, load(from)), to);
  }
  DYNEMB_AVX512 static void signed_bytes(uint8_t const* from, Integers* to) {
    store(_mm512_maskz_cvtepi8_epi32(kAll16, load(from)), to);
  }
  DYNEMB_AVX512 static void half_bytes(uint8_t const* from, Integers* to) {
    auto const eight = _mm_loadl_epi64(reinterpret_cast<__m128i const*>(from));
    auto const wide = _mm512_maskz_cvtepu8_epi64(kAll8, eight);
    auto const both = _mm512_or_si512(wide, _mm512_maskz_slli_epi64(kAll8, wide, 28));
    store(_mm512_and_si512(both, _mm512_set1_epi32(15)), to);
  }

 private:
  // GCC 12 takes what these leave out for uninitialized without a mask.
  static constexpr __mmask16 kAll16 = 0xffff;
  static constexpr __mmask8 kAll8 = 0xff;

  DYNEMB_AVX512 static __m128i load(uint8_t const* from) {
    return _mm_loadu_si128(reinterpret_cast<__m128i const*>(from));
  }
  DYNEMB_AVX512 static void store(__m512i from, Integers* to) { memcpy(to, &from, sizeof(from)); }
};
#endif

// Values of float8 codes. Those below 8 are subnormal: not as bits of a float, since a thread of
// XLA may read subnormal floats as zeros.
template <class Floats, class Integers>
void float8_values(Integers const& codes, Floats* to) {
  auto const magnitudes = codes & 0x7f;
  auto const small = __builtin_convertvector(magnitudes, Floats) * (1.0f / 512);
  Integers small_bits;
  memcpy(&small_bits, &small, sizeof(small));
  auto const is_small = magnitudes < 8;
  auto const bits = (is_small & small_bits) | (~is_small & ((magnitudes << 20) + (120 << 23)));
  auto const signed_bits = bits | ((codes & 0x80) << 24);
  memcpy(to, &signed_bits, sizeof(*to));
}

// Loads values of the columns from `column` on, an even one, without their scale.
template <Isa isa, RowCode code, class Floats>
void load_codes(uint8_t const* codes, int32_t column, Floats* to) {
  auto const* const from = codes + code_offset(code, column);
  typename IntegerVector<isa>::Type integers;
  if constexpr (code == RowCode::kFloat8) {
    Widen<isa>::bytes(from, &integers);
    float8_values(integers, to);
  } else if constexpr (code == RowCode::kInt8) {
    Widen<isa>::signed_bytes(from, &integers);
    *to = __builtin_convertvector(integers, Floats);
  } else {
    Widen<isa>::half_bytes(from, &integers);
    *to = __builtin_convertvector(integers - 8, Floats);
  }
}

template <RowCode code>
float column_value(uint8_t const* codes, int32_t column) {
  uint32_t const byte = codes[code_offset(code, column)];
  return code_value<code>(code == RowCode::kInt4 && column % 2 != 0 ? byte >> 4 : byte);
}

}  // namespace detail

inline float scale_of_row(uint8_t const* row) {
  float scale;
  memcpy(&scale, row, sizeof(scale));
  return scale;
}

// out = factor * the codes of a row.
template <Isa isa, RowCode code>
void unpack_row(uint8_t const* row, float factor, int32_t dim, float* out) {
  using Vector = typename detail::FloatVector<isa>::Type;
  constexpr auto kWidth = static_cast<int32_t>(sizeof(Vector) / sizeof(float));
  auto const* const codes = row + kScaleBytes;
  auto const many = [&](auto vectors, int32_t column) {
#pragma GCC unroll 4
    for (int v = 0; v < decltype(vectors)::value; ++v) {
      auto const first = column + v * kWidth;
      Vector values;
      detail::load_codes<isa, code>(codes, first, &values);
      detail::store_vector(factor * values, out + first);
    }
  };
  detail::for_each_column<Vector>(dim, many, [&](int32_t column) {
    out[column] = factor * detail::column_value<code>(codes, column);
  });
}

// sum += factors[0] * the codes of rows[0], and so on, in this order for each column.
template <Isa isa, RowCode code>
void add_packed_rows(uint8_t const* const* rows, float const* factors, int count, int32_t dim,
                     float* sum) {
  using Vector = typename detail::FloatVector<isa>::Type;
  constexpr auto kWidth = static_cast<int32_t>(sizeof(Vector) / sizeof(float));
  auto const many = [&](auto vectors, int32_t column) {
    constexpr auto kVectors = decltype(vectors)::value;
    Vector sums[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) detail::load_vector(sum + column + v * kWidth, &sums[v]);
    for (int r = 0; r < count; ++r) {
      auto const* const codes = rows[r] + kScaleBytes;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        Vector values;
        detail::load_codes<isa, code>(codes, column + v * kWidth, &values);
        sums[v] += factors[r] * values;
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) detail::store_vector(sums[v], sum + column + v * kWidth);
  };
  detail::for_each_column<Vector>(dim, many, [&](int32_t column) {
    for (int r = 0; r < count; ++r) {
      sum[column] += factors[r] * detail::column_value<code>(rows[r] + kScaleBytes, column);
    }
  });
}

}  // namespace dynemb::cpu
