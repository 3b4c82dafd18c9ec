// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/loops/row_sums.h: rows are added up with the sums in registers. In memory, each addition
// would wait for the store of the one before: for rows that are in a cache, most of the time.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/value_type.h"
#include "cpu/loops/isa.h"

namespace dynemb::cpu {

namespace detail {

template <Isa isa>
struct FloatVector {
  typedef float Type __attribute__((vector_size(16)));
};
template <>
struct FloatVector<Isa::kAvx2> {
  typedef float Type __attribute__((vector_size(32)));
};
template <>
struct FloatVector<Isa::kAvx512> {
  typedef float Type __attribute__((vector_size(64)));
};

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

// As many columns as fit into `vectors` vectors, from `column` on. Without factors they are ones.
template <int vectors, class Vector, class V>
void add_columns(V const* const* rows, float const* factors, int count, int32_t column,
                 Vector* sums) {
  constexpr auto kWidth = static_cast<int>(sizeof(Vector) / sizeof(float));
  for (int r = 0; r < count; ++r) {
    auto const* const row = rows[r] + column;
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      Vector values;
      load_vector(row + v * kWidth, &values);
      sums[v] += factors == nullptr ? values : factors[r] * values;
    }
  }
}

template <int vectors, class Vector, class V>
void add_to_columns(V const* const* rows, float const* factors, int count, int32_t column,
                    float* sum) {
  constexpr auto kWidth = static_cast<int>(sizeof(Vector) / sizeof(float));
  Vector sums[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) load_vector(sum + column + v * kWidth, &sums[v]);
  add_columns<vectors>(rows, factors, count, column, sums);
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) store_vector(sums[v], sum + column + v * kWidth);
}

template <int vectors, class Vector, class V, class O>
void sum_columns(V const* const* rows, float const* factors, int count, int32_t column, float scale,
                 O* out) {
  constexpr auto kWidth = static_cast<int>(sizeof(Vector) / sizeof(float));
  Vector sums[vectors] = {};
  add_columns<vectors>(rows, factors, count, column, sums);
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) store_vector(scale * sums[v], out + column + v * kWidth);
}

template <class V>
float add_column(V const* const* rows, float const* factors, int count, int32_t column, float sum) {
  for (int r = 0; r < count; ++r) {
    auto const value = to_float(rows[r][column]);
    sum += factors == nullptr ? value : factors[r] * value;
  }
  return sum;
}

// Calls many(vectors, column) for so many vectors of columns, one(column) for those that are
// left.
template <class Vector, class Many, class One>
void for_each_column(int32_t dim, Many const& many, One const& one) {
  constexpr auto kWidth = static_cast<int32_t>(sizeof(Vector) / sizeof(float));
  int32_t column = 0;
  for (; column + 4 * kWidth <= dim; column += 4 * kWidth) {
    many(std::integral_constant<int, 4>{}, column);
  }
  for (; column + kWidth <= dim; column += kWidth) many(std::integral_constant<int, 1>{}, column);
  for (; column < dim; ++column) one(column);
}

}  // namespace detail

constexpr int kRowsAtOnce = 32;

// sum += factors[0] * rows[0], then += factors[1] * rows[1], and so on; null: factors of one. Each
// column is summed in this order, so the bits are the same whatever the width of a vector.
template <Isa isa, class V>
void add_rows(V const* const* rows, float const* factors, int count, int32_t dim, float* sum) {
  using Vector = typename detail::FloatVector<isa>::Type;
  auto const many = [&](auto vectors, int32_t column) {
    detail::add_to_columns<decltype(vectors)::value, Vector>(rows, factors, count, column, sum);
  };
  detail::for_each_column<Vector>(dim, many, [&](int32_t column) {
    sum[column] = detail::add_column(rows, factors, count, column, sum[column]);
  });
}

// out = scale * what add_rows makes of zeros; the sums stay in registers.
template <Isa isa, class V, class O>
void sum_rows(V const* const* rows, float const* factors, int count, int32_t dim, float scale,
              O* out) {
  using Vector = typename detail::FloatVector<isa>::Type;
  auto const many = [&](auto vectors, int32_t column) {
    detail::sum_columns<decltype(vectors)::value, Vector>(rows, factors, count, column, scale, out);
  };
  detail::for_each_column<Vector>(dim, many, [&](int32_t column) {
    auto const sum = detail::add_column(rows, factors, count, column, 0.0f);
    from_float(scale * sum, out + column);
  });
}

}  // namespace dynemb::cpu
