// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/row_sums.h: rows are added up with the sums in registers. In memory, each addition would
// wait for the store of the one before: for rows that are in a cache, most of the time.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "core/value_type.h"
#include "cpu/isa.h"

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

// As many columns as fit into `vectors` vectors, from `column` on.
template <int vectors, class Vector, class V>
void add_columns(V const* const* rows, float const* factors, int count, int32_t column,
                 float* sum) {
  constexpr auto kWidth = static_cast<int>(sizeof(Vector) / sizeof(float));
  Vector sums[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) load_vector(sum + column + v * kWidth, &sums[v]);
  for (int r = 0; r < count; ++r) {
    auto const* const row = rows[r] + column;
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      Vector values;
      load_vector(row + v * kWidth, &values);
      sums[v] += factors[r] * values;
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) memcpy(sum + column + v * kWidth, &sums[v], sizeof(Vector));
}

}  // namespace detail

constexpr int kRowsAtOnce = 32;

// The factors of rows that have none.
inline constexpr auto kOnes = [] {
  std::array<float, kRowsAtOnce> ones{};
  for (auto& one : ones) one = 1.0f;
  return ones;
}();

// sum += factors[0] * rows[0], then += factors[1] * rows[1], and so on. Each column is summed in
// this order, so the bits are the same whatever the width of a vector.
template <Isa isa, class V>
void add_rows(V const* const* rows, float const* factors, int count, int32_t dim, float* sum) {
  using Vector = typename detail::FloatVector<isa>::Type;
  constexpr auto kWidth = static_cast<int32_t>(sizeof(Vector) / sizeof(float));
  int32_t column = 0;
  for (; column + 4 * kWidth <= dim; column += 4 * kWidth) {
    detail::add_columns<4, Vector>(rows, factors, count, column, sum);
  }
  for (; column + kWidth <= dim; column += kWidth) {
    detail::add_columns<1, Vector>(rows, factors, count, column, sum);
  }
  for (int r = 0; column < dim && r < count; ++r) {
    for (auto c = column; c < dim; ++c) sum[c] += factors[r] * to_float(rows[r][c]);
  }
}

}  // namespace dynemb::cpu
