// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/loops/columns.h: the columns of a row in vectors, whatever their number.
//
// The last vector ends where the row ends, so it may overlap the one before: what they share is
// computed twice, from the same numbers. So no column is left to a loop of its own, and no
// instruction set needs masks. Rows narrower than a vector have narrower vectors.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/value_type.h"
#include "cpu/loops/isa.h"

namespace dynemb::cpu {

template <int width>
struct Floats {
  typedef float Type __attribute__((vector_size(width * 4)));
};
template <>
struct Floats<1> {
  using Type = float;
};

constexpr int widest(Isa isa) { return isa == Isa::kAvx512 ? 16 : isa == Isa::kAvx2 ? 8 : 4; }

template <class Vector>
void load_vector(float const* from, Vector* to) {
  memcpy(to, from, sizeof(Vector));
}

template <class Vector, class V>
void load_vector(V const* from, Vector* to) {
  float values[sizeof(Vector) / sizeof(float)];
  for (size_t i = 0; i < sizeof(Vector) / sizeof(float); ++i) values[i] = to_float(from[i]);
  memcpy(to, values, sizeof(Vector));
}

template <class Vector, class O>
void store_vector(Vector const& from, O* to) {
  float values[sizeof(Vector) / sizeof(float)];
  memcpy(values, &from, sizeof(Vector));
  for (size_t i = 0; i < sizeof(Vector) / sizeof(float); ++i) from_float(values[i], to + i);
}

// Words, and their halves. GCC makes vectors of such conversions, but not of the loops above.
template <int width>
struct Words {
  typedef uint32_t Type __attribute__((vector_size(width * 4)));
  typedef uint16_t Halves __attribute__((vector_size(width * 2)));
};

template <class Vector>
void load_vector(BFloat16 const* from, Vector* to) {
  if constexpr (sizeof(Vector) == sizeof(float)) {
    *to = to_float(*from);
  } else {
    using Of = Words<sizeof(Vector) / sizeof(float)>;
    typename Of::Halves halves;
    memcpy(&halves, from, sizeof(halves));
    typename Of::Type const words = __builtin_convertvector(halves, typename Of::Type) << 16;
    memcpy(to, &words, sizeof(words));
  }
}

// from_float of each number.
template <class Vector>
void store_vector(Vector const& from, BFloat16* to) {
  if constexpr (sizeof(Vector) == sizeof(float)) {
    from_float(from, to);
  } else {
    using Of = Words<sizeof(Vector) / sizeof(float)>;
    typename Of::Type bits;
    memcpy(&bits, &from, sizeof(bits));
    auto const rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    auto const quiet = bits >> 16 | 0x40u;
    typename Of::Type const words = (bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded;
    auto const halves = __builtin_convertvector(words, typename Of::Halves);
    memcpy(to, &halves, sizeof(halves));
  }
}

// Holds up to four vectors of columns. They lie side by side, but for the last one of a row.
template <int width, int vectors, bool ends_row>
struct Columns {
  using Vector = typename Floats<width>::Type;
  static constexpr int kVectors = vectors;

  int32_t first, last;  // columns, where the first and the last vector begin

  int32_t at(int v) const { return ends_row && v == vectors - 1 ? last : first + v * width; }
};

namespace detail {

template <int width, int most, class Body>
void for_each_columns(int32_t dim, Body const& body) {
  if constexpr (width > 1) {
    if (dim < width) return for_each_columns<width / 2, 2>(dim, body);
  }
  int32_t column = 0;
  if constexpr (most == 4) {
    for (; column + 4 * width <= dim; column += 4 * width) {
      body(Columns<width, 4, false>{column, column + 3 * width});
    }
  }
  auto const left = (dim - column + width - 1) / width;
  auto const last = dim - width;
  if (left == 0) return;
  if (left == 1) return body(Columns<width, 1, true>{last, last});
  if constexpr (width > 1) {
    if (left == 2) return body(Columns<width, 2, true>{column, last});
  }
  if constexpr (most == 4) {
    if (left == 3) return body(Columns<width, 3, true>{column, last});
    if (left == 4) return body(Columns<width, 4, true>{column, last});
  }
}

}  // namespace detail

// Calls body(Columns<...>) for the columns of a row of `dim`, from the first to the last.
template <Isa isa, class Body>
void for_each_columns(int32_t dim, Body const& body) {
  detail::for_each_columns<widest(isa), 4>(dim, body);
}

// Each vector of columns becomes change(columns, vector). What two vectors share is changed once.
template <Isa isa, class Change>
void change_columns(int32_t dim, float* row, Change const& change) {
  constexpr int kWidth = widest(isa);
  typename Floats<kWidth>::Type last{};  // as it was before the vector that it overlaps was stored
  if (dim >= kWidth) load_vector(row + dim - kWidth, &last);
  for_each_columns<isa>(dim, [&](auto columns) {
    typename decltype(columns)::Vector vectors[columns.kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < columns.kVectors; ++v) load_vector(row + columns.at(v), &vectors[v]);
    if constexpr (sizeof(last) == sizeof(vectors[0])) {
      if (columns.last == dim - kWidth) vectors[columns.kVectors - 1] = last;
    }
    change(columns, vectors);
#pragma GCC unroll 4
    for (int v = 0; v < columns.kVectors; ++v) store_vector(vectors[v], row + columns.at(v));
  });
}

// out = function(row), vector by vector; `out` is another array.
template <Isa isa, class V, class O, class Function>
void map_columns(V const* row, int32_t dim, O* out, Function const& function) {
  for_each_columns<isa>(dim, [&](auto columns) {
#pragma GCC unroll 4
    for (int v = 0; v < columns.kVectors; ++v) {
      typename decltype(columns)::Vector values;
      load_vector(row + columns.at(v), &values);
      function(&values);
      store_vector(values, out + columns.at(v));
    }
  });
}

}  // namespace dynemb::cpu
