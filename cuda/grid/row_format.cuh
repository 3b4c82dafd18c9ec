// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/grid/row_format.cuh: four columns of a row, read and written by one lane.
//
// A quad is loaded as raw bits and converted later: several rows can be in flight before the
// first is looked at, also where the elements have 16 bits. A format is known at run time
// (AnyFormat) or at compile time (Vectors, the path that most calls take), or only its width is
// known at run time (Floats).
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/value_type.h"

namespace dynemb::cuda {

struct AnyFormat {
  ValueType type;
  bool vector;  // four columns may be moved by one instruction
};

template <ValueType kType>
struct Vectors {
  static constexpr ValueType type = kType;
  static constexpr bool vector = true;
};

using FloatVectors = Vectors<ValueType::kFloat32>;

struct Floats {
  static constexpr ValueType type = ValueType::kFloat32;
  bool vector;
};

template <class Format>
__device__ __forceinline__ Format make_format(ValueType type, bool vector) {
  if constexpr (std::is_same_v<Format, AnyFormat>) {
    return {type, vector};
  } else if constexpr (std::is_same_v<Format, Floats>) {
    return {vector};
  } else {
    return {};
  }
}

// The same where a row is no whole number of 16-byte words: a lane takes four columns at a time.
template <ValueType kType>
struct QuadVectors : Vectors<kType> {};

// The formats of all tables and of all rows given or returned in a call, if they are known when a
// kernel is compiled.
struct AnyFormats {
  static constexpr bool kKnown = false;
  static constexpr bool kPacked = false;
  using Stored = AnyFormat;
  using Row = AnyFormat;
};

// Rows of float32, some of which no vectors can move.
struct FloatWidths {
  static constexpr bool kKnown = true;
  static constexpr bool kPacked = false;
  using Stored = Floats;
  using Row = Floats;
};

template <ValueType kStored, ValueType kRow>
struct KnownFormats {
  static constexpr bool kKnown = true;
  static constexpr bool kPacked = false;
  using Stored = Vectors<kStored>;
  using Row = Vectors<kRow>;
};

using FloatFormats = KnownFormats<ValueType::kFloat32, ValueType::kFloat32>;
using HalfFormats = KnownFormats<ValueType::kBFloat16, ValueType::kBFloat16>;
using MixedFormats = KnownFormats<ValueType::kBFloat16, ValueType::kFloat32>;

// Rows of bfloat16 of any width that vectors of four can move.
template <ValueType kRow>
struct HalfQuadFormats {
  static constexpr bool kKnown = true;
  static constexpr bool kPacked = false;
  using Stored = QuadVectors<ValueType::kBFloat16>;
  using Row = QuadVectors<kRow>;
};

struct RawQuad {
  uint32_t word[4];
};

// Loads the memory around an address into L2 without waiting for it.
__device__ __forceinline__ void prefetch_line(void const* address) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#else
  (void)address;
#endif
}

// Of known elements with 16 bits 16 bytes are two quads, where one load is better than two.
template <class Format>
constexpr int kQuadsOfWord = 1;
template <>
inline constexpr int kQuadsOfWord<Vectors<ValueType::kBFloat16>> = 2;

__host__ __device__ __forceinline__ bool moves_vectors(void const* rows, int32_t dim) {
  return dim % 4 == 0 && reinterpret_cast<uintptr_t>(rows) % 16 == 0;
}

template <class Format>
bool is_format(ValueType type, void const* rows, int32_t dim) {
  auto const fits = std::is_same_v<Format, Floats> || moves_vectors(rows, dim);
  return type == Format::type && fits;
}

template <class Format>
__device__ __forceinline__ int32_t element_bytes(Format format) {
  return format.type == ValueType::kFloat32 ? 4 : 2;
}

template <class Format>
__device__ __forceinline__ char* element_pointer(Format format, void* rows, int64_t offset) {
  return static_cast<char*>(rows) + offset * element_bytes(format);
}

// Bytes of a stored row, and where a column of row 0 is stored; formats of packed rows have their
// own (cuda/grid/packed_format.cuh).
template <class Format>
__device__ __forceinline__ uint32_t stored_row_bytes(Format format, int32_t dim) {
  return static_cast<uint32_t>(dim * element_bytes(format));
}

template <class Format>
__device__ __forceinline__ char const* stored_column(Format format, void const* rows,
                                                     int32_t column) {
  return static_cast<char const*>(rows) + column * element_bytes(format);
}

// A format whose rows have a scale each.
template <class Format>
constexpr bool kIsPacked = false;

template <class Format>
__device__ __forceinline__ char* row_pointer(Format format, void* rows, int64_t row, int32_t dim) {
  return element_pointer(format, rows, row * dim);
}

template <class Format>
__device__ __forceinline__ char const* row_pointer(Format format, void const* rows, int64_t row,
                                                   int32_t dim) {
  return row_pointer(format, const_cast<void*>(rows), row, dim);
}

// rows + row * row_bytes in one instruction; a sum and a product of 64 bits would take five.
template <class Byte>
__device__ __forceinline__ Byte* nth_row(Byte* rows, uint32_t row, uint32_t row_bytes) {
#ifdef __CUDA_ARCH__
  Byte* result;
  asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(result) : "r"(row), "r"(row_bytes), "l"(rows));
  return result;
#else
  return rows + uint64_t{row} * row_bytes;
#endif
}

// All below require 0 <= column < dim. Columns from dim on read as zeros.

template <ValueType kType>
__device__ __forceinline__ RawQuad load_quad(Vectors<kType>, char const* row, int32_t column,
                                             int32_t /*dim*/) {
  if constexpr (kType == ValueType::kFloat32) {
    auto const bits = *reinterpret_cast<uint4 const*>(row + column * 4);
    return {{bits.x, bits.y, bits.z, bits.w}};
  } else {
    auto const bits = *reinterpret_cast<uint2 const*>(row + column * 2);
    return {{bits.x, bits.y, 0, 0}};
  }
}

// What a quad holds where `wanted` is false. Undefined is cheaper, where the quad is not read then:
// no zeros are written.
enum class Masked { kZeros, kUndefined };

// The same if `wanted`; without a branch, which would keep the next load waiting.
template <Masked kElse = Masked::kZeros, ValueType kType>
__device__ __forceinline__ RawQuad load_quad_if(bool wanted, Vectors<kType> format, char const* row,
                                                int32_t column, int32_t dim) {
  RawQuad quad;
#ifdef __CUDA_ARCH__
  if constexpr (kElse == Masked::kZeros) quad = {{0, 0, 0, 0}};
  auto* const w = quad.word;
  auto const predicate = static_cast<int>(wanted);
  if constexpr (kType == ValueType::kFloat32) {
    asm volatile(
        "{\n .reg .pred p;\n setp.ne.s32 p, %5, 0;\n"
        " @p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
        : "+r"(w[0]), "+r"(w[1]), "+r"(w[2]), "+r"(w[3])
        : "l"(row + column * 4), "r"(predicate));
  } else {
    asm volatile(
        "{\n .reg .pred p;\n setp.ne.s32 p, %3, 0;\n"
        " @p ld.global.v2.u32 {%0, %1}, [%2];\n}"
        : "+r"(w[0]), "+r"(w[1])
        : "l"(row + column * 2), "r"(predicate));
  }
#else  // a host reads NaN, so that a test fails if it is used
  constexpr uint32_t kElseWord = kElse == Masked::kZeros ? 0 : 0x7fc00000;
  for (auto& word : quad.word) word = kElseWord;
  if (wanted) quad = load_quad(format, row, column, dim);
#endif
  return quad;
}

template <class Word>
__device__ __forceinline__ RawQuad load_scalars(char const* row, int32_t column, int32_t dim) {
  auto const* const from = reinterpret_cast<Word const*>(row) + column;
  RawQuad quad{{0, 0, 0, 0}};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (column + i < dim) quad.word[i] = from[i];
  }
  return quad;
}

__device__ __forceinline__ RawQuad load_quad(AnyFormat format, char const* row, int32_t column,
                                             int32_t dim) {
  if (format.type == ValueType::kFloat32) {
    if (format.vector) return load_quad(FloatVectors{}, row, column, dim);
    return load_scalars<uint32_t>(row, column, dim);
  }
  if (!format.vector) return load_scalars<uint16_t>(row, column, dim);
  return load_quad(Vectors<ValueType::kBFloat16>{}, row, column, dim);  // the same for all 16 bits
}

template <Masked kElse = Masked::kZeros>
__device__ __forceinline__ RawQuad load_quad_if(bool wanted, AnyFormat format, char const* row,
                                                int32_t column, int32_t dim) {
  return wanted ? load_quad(format, row, column, dim) : RawQuad{{0, 0, 0, 0}};
}

__device__ __forceinline__ RawQuad load_quad(Floats format, char const* row, int32_t column,
                                             int32_t dim) {
  return load_quad(AnyFormat{Floats::type, format.vector}, row, column, dim);
}

// By one load for each column that exists, or by one for all: a branch between them would keep the
// next load waiting.
template <Masked kElse = Masked::kZeros>
__device__ __forceinline__ RawQuad load_quad_if(bool wanted, Floats format, char const* row,
                                                int32_t column, int32_t dim) {
  RawQuad quad{{0, 0, 0, 0}};
#ifdef __CUDA_ARCH__
  auto* const w = quad.word;
  auto const vectors = static_cast<int>(wanted && format.vector);
  auto const scalars = wanted && !format.vector ? dim - column : 0;
  asm volatile(
      "{\n .reg .pred v, a, b, c, d;\n"
      " setp.ne.s32 v, %5, 0;\n setp.gt.s32 a, %6, 0;\n setp.gt.s32 b, %6, 1;\n"
      " setp.gt.s32 c, %6, 2;\n setp.gt.s32 d, %6, 3;\n"
      " @v ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n"
      " @a ld.global.u32 %0, [%4];\n @b ld.global.u32 %1, [%4 + 4];\n"
      " @c ld.global.u32 %2, [%4 + 8];\n @d ld.global.u32 %3, [%4 + 12];\n}"
      : "+r"(w[0]), "+r"(w[1]), "+r"(w[2]), "+r"(w[3])
      : "l"(row + column * 4), "r"(vectors), "r"(scalars));
#else
  if (wanted) quad = load_quad(format, row, column, dim);
#endif
  return quad;
}

__device__ __forceinline__ float half_to_float(ValueType type, uint32_t bits) {
  auto const word = static_cast<uint16_t>(bits);
  return type == ValueType::kBFloat16 ? to_float(BFloat16{word}) : to_float(Float16{word});
}

template <ValueType kType>
__device__ __forceinline__ float4 to_floats(Vectors<kType>, RawQuad const& quad) {
  auto const* const w = quad.word;
  if constexpr (kType == ValueType::kFloat32) {
    return {__uint_as_float(w[0]), __uint_as_float(w[1]), __uint_as_float(w[2]),
            __uint_as_float(w[3])};
  } else {
    return {half_to_float(kType, w[0]), half_to_float(kType, w[0] >> 16),
            half_to_float(kType, w[1]), half_to_float(kType, w[1] >> 16)};
  }
}

__device__ __forceinline__ float4 to_floats(Floats, RawQuad const& quad) {
  return to_floats(FloatVectors{}, quad);
}

// Two elements lie in one word if the format moves vectors, else each in its own.
__device__ __forceinline__ float4 to_floats(AnyFormat format, RawQuad const& quad) {
  if (format.type == ValueType::kFloat32) return to_floats(FloatVectors{}, quad);
  auto const* const w = quad.word;
  auto const x = w[0], y = format.vector ? w[0] >> 16 : w[1];
  auto const z = format.vector ? w[1] : w[2], last = format.vector ? w[1] >> 16 : w[3];
  return {half_to_float(format.type, x), half_to_float(format.type, y),
          half_to_float(format.type, z), half_to_float(format.type, last)};
}

__device__ __forceinline__ uint32_t half_bits(ValueType type, float value) {
  if (type == ValueType::kBFloat16) {
    BFloat16 result;
    from_float(value, &result);
    return result.bits;
  }
  Float16 result;
  from_float(value, &result);
  return result.bits;
}

template <bool kStreaming, class Vector>
__device__ __forceinline__ void store_vector(void* to, Vector const& value) {
  if constexpr (kStreaming) {
    __stcs(static_cast<Vector*>(to), value);
  } else {
    *static_cast<Vector*>(to) = value;
  }
}

__device__ __forceinline__ uint2 half_bits(ValueType type, float4 const& v) {
  return {half_bits(type, v.x) | half_bits(type, v.y) << 16,
          half_bits(type, v.z) | half_bits(type, v.w) << 16};
}

// kStreaming: the row is not read again by this operation, so the cache should evict it first.
template <bool kStreaming = false, ValueType kType>
__device__ __forceinline__ void store_quad(Vectors<kType>, char* row, int32_t column,
                                           int32_t /*dim*/, float4 const& values) {
  if constexpr (kType == ValueType::kFloat32) {
    store_vector<kStreaming>(row + column * 4, values);
  } else {
    store_vector<kStreaming>(row + column * 2, half_bits(kType, values));
  }
}

template <class Word>
__device__ __forceinline__ void store_scalars(char* row, int32_t column, int32_t dim,
                                              uint32_t const (&bits)[4]) {
  auto* const to = reinterpret_cast<Word*>(row) + column;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (column + i < dim) to[i] = static_cast<Word>(bits[i]);
  }
}

template <bool kStreaming = false>
__device__ __forceinline__ void store_quad(AnyFormat format, char* row, int32_t column, int32_t dim,
                                           float4 const& v) {
  if (format.type == ValueType::kFloat32) {
    if (format.vector) return store_quad<kStreaming>(FloatVectors{}, row, column, dim, v);
    return store_scalars<uint32_t>(
        row, column, dim,
        {__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z), __float_as_uint(v.w)});
  }
  if (!format.vector) {
    return store_scalars<uint16_t>(row, column, dim,
                                   {half_bits(format.type, v.x), half_bits(format.type, v.y),
                                    half_bits(format.type, v.z), half_bits(format.type, v.w)});
  }
  store_vector<kStreaming>(row + column * 2, half_bits(format.type, v));
}

template <bool kStreaming = false>
__device__ __forceinline__ void store_quad(Floats format, char* row, int32_t column, int32_t dim,
                                           float4 const& v) {
  store_quad<kStreaming>(AnyFormat{Floats::type, format.vector}, row, column, dim, v);
}

// kQuadsOfWord quads from a row on, in one instruction if the format is known; `left` columns
// follow, a multiple of 4 kQuadsOfWord.
template <class Format>
__device__ __forceinline__ RawQuad load_word_if(bool wanted, Format format, char const* row,
                                                int32_t left) {
  if constexpr (kQuadsOfWord<Format> == 1) {
    return load_quad_if(wanted, format, row, 0, left);
  } else {
    return load_quad_if(wanted, FloatVectors{}, row, 0, left);  // the same bytes
  }
}

template <class Format>
__device__ __forceinline__ float4 to_floats(Format format, RawQuad const& word, int quad) {
  if constexpr (kQuadsOfWord<Format> == 1) {
    return to_floats(format, word);
  } else {
    return to_floats(format, RawQuad{{word.word[2 * quad], word.word[2 * quad + 1], 0, 0}});
  }
}

// Stores quads side by side. If they are two, all of their columns exist.
template <bool kStreaming, class Format, int kQuads>
__device__ __forceinline__ void store_quads(Format format, char* row, int32_t column, int32_t dim,
                                            float4 const (&values)[kQuads]) {
  if constexpr (kQuads == 2 && kQuadsOfWord<Format> == 2) {
    auto const a = half_bits(Format::type, values[0]), b = half_bits(Format::type, values[1]);
    store_vector<kStreaming>(row + column * 2, uint4{a.x, a.y, b.x, b.y});
  } else {
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      store_quad<kStreaming>(format, row, column + q * 4, dim, values[q]);
    }
  }
}

// What `v` becomes when it is stored as `type` and read back.
__device__ __forceinline__ float rounded_to(ValueType type, float v) {
  return type == ValueType::kFloat32 ? v : half_to_float(type, half_bits(type, v));
}

__device__ __forceinline__ void add_scaled(float4& sum, float factor, float4 const& v) {
  sum.x += factor * v.x;
  sum.y += factor * v.y;
  sum.z += factor * v.z;
  sum.w += factor * v.w;
}

__device__ __forceinline__ float4 scaled(float factor, float4 const& v) {
  return {factor * v.x, factor * v.y, factor * v.z, factor * v.w};
}

}  // namespace dynemb::cuda
