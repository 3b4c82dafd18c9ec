// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/loops/packed_rows.h: loops over the columns of packed rows (core/packed_row.h).
#pragma once

#include <cstdint>
#include <cstring>

#include "core/packed_row.h"
#include "cpu/loops/columns.h"

#ifdef DYNEMB_X86
#include <immintrin.h>
#endif

namespace dynemb::cpu {

namespace detail {

// As many integers as a vector of floats has.
template <int width>
struct IntegerVector {
  typedef int32_t Type __attribute__((vector_size(width * 4)));
};

// Codes become 32-bit integers. Written for AVX2 and AVX-512, whose vectors have 8 and 16 columns:
// a compiler makes one move of each code.
template <int width>
struct Widen {
  using Integers = typename IntegerVector<width>::Type;

  static void bytes(uint8_t const* from, Integers* to) {
    for (int i = 0; i < width; ++i) (*to)[i] = from[i];
  }
  static void signed_bytes(uint8_t const* from, Integers* to) {
    for (int i = 0; i < width; ++i) (*to)[i] = static_cast<int8_t>(from[i]);
  }
  static void half_bytes(uint8_t const* from, Integers* to) {
    for (int i = 0; i < width; ++i) (*to)[i] = from[i / 2] >> i % 2 * 4 & 15;
  }
};

#ifdef DYNEMB_X86
template <>
struct Widen<8> {
  using Integers = IntegerVector<8>::Type;

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
struct Widen<16> {
  using Integers = IntegerVector<16>::Type;

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
template <RowCode code, class Vector>
void load_codes(uint8_t const* codes, int32_t column, Vector* to) {
  constexpr auto kWidth = static_cast<int>(sizeof(Vector) / sizeof(float));
  auto const* const from = codes + code_offset(code, column);
  [[maybe_unused]] typename IntegerVector<kWidth>::Type integers;
  if constexpr (kWidth == 1) {
    *to = code_value<code>(*from);
  } else if constexpr (code == RowCode::kFloat8) {
    Widen<kWidth>::bytes(from, &integers);
    float8_values(integers, to);
  } else if constexpr (code == RowCode::kInt8) {
    Widen<kWidth>::signed_bytes(from, &integers);
    *to = __builtin_convertvector(integers, Vector);
  } else {
    Widen<kWidth>::half_bytes(from, &integers);
    *to = __builtin_convertvector(integers - 8, Vector);
  }
}

// How many columns vectors can have: they begin at even ones of those that share bytes.
constexpr int32_t in_vectors(RowCode code, int32_t dim) {
  return dim - dim % columns_of_byte(code);
}

// The last column of a row of `dim`, if it shares no byte.
template <RowCode code>
float last_value(uint8_t const* codes, int32_t dim) {
  return code_value<code>(codes[code_offset(code, dim - 1)]);
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
  auto const* const codes = row + kScaleBytes;
  auto const even = detail::in_vectors(code, dim);
  for_each_columns<isa>(even, [&](auto columns) {
#pragma GCC unroll 4
    for (int v = 0; v < columns.kVectors; ++v) {
      typename decltype(columns)::Vector values;
      detail::load_codes<code>(codes, columns.at(v), &values);
      store_vector(factor * values, out + columns.at(v));
    }
  });
  if (even < dim) out[even] = factor * detail::last_value<code>(codes, dim);
}

// sum += factors[0] * the codes of rows[0], and so on, in this order for each column.
template <Isa isa, RowCode code>
void add_packed_rows(uint8_t const* const* rows, float const* factors, int count, int32_t dim,
                     float* sum) {
  auto const even = detail::in_vectors(code, dim);
  change_columns<isa>(even, sum, [&](auto const& columns, auto* sums) {
    for (int r = 0; r < count; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < columns.kVectors; ++v) {
        auto values = sums[v];
        detail::load_codes<code>(rows[r] + kScaleBytes, columns.at(v), &values);
        sums[v] += factors[r] * values;
      }
    }
  });
  for (int r = 0; even < dim && r < count; ++r) {
    sum[even] += factors[r] * detail::last_value<code>(rows[r] + kScaleBytes, dim);
  }
}

}  // namespace dynemb::cpu
