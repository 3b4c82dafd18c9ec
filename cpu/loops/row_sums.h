// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/loops/row_sums.h: rows are added up with the sums in registers. In memory, each addition
// would wait for the store of the one before: for rows that are in a cache, most of the time.
#pragma once

#include <cstdint>

#include "cpu/loops/columns.h"

namespace dynemb::cpu {

constexpr int kRowsAtOnce = 32;

namespace detail {

// Without factors they are ones.
template <class Columns, class V>
void add_columns(V const* const* rows, float const* factors, int count, Columns const& columns,
                 typename Columns::Vector* sums) {
  for (int r = 0; r < count; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Columns::kVectors; ++v) {
      typename Columns::Vector values;
      load_vector(rows[r] + columns.at(v), &values);
      sums[v] += factors == nullptr ? values : factors[r] * values;
    }
  }
}

}  // namespace detail

// sum += factors[0] * rows[0], then += factors[1] * rows[1], and so on; null: factors of one. Each
// column is summed in this order, so the bits are the same whatever the width of a vector.
template <Isa isa, class V>
void add_rows(V const* const* rows, float const* factors, int count, int32_t dim, float* sum) {
  change_columns<isa>(dim, sum, [&](auto const& columns, auto* sums) {
    detail::add_columns(rows, factors, count, columns, sums);
  });
}

// out = scale * what add_rows makes of zeros; the sums stay in registers.
template <Isa isa, class V, class O>
void sum_rows(V const* const* rows, float const* factors, int count, int32_t dim, float scale,
              O* out) {
  for_each_columns<isa>(dim, [&](auto columns) {
    typename decltype(columns)::Vector sums[columns.kVectors] = {};
    detail::add_columns(rows, factors, count, columns, sums);
#pragma GCC unroll 4
    for (int v = 0; v < columns.kVectors; ++v) store_vector(scale * sums[v], out + columns.at(v));
  });
}

}  // namespace dynemb::cpu
