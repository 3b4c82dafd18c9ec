// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/column_loops.h: the passes of one optimizer of core/optimizers/ over the columns of
// a row.
//
// Structs are taken by value here: their numbers stay in registers, since no store to a column can
// change them.
#pragma once

#include <cstdint>

#include "core/finite.h"
#include "core/macros.h"
#include "core/optimizers/list.h"

namespace dynemb::cpu {

// Holds the columns of a row. A wide state that the optimizer does not have is the row itself, so
// that every loop may read it.
struct RowColumns {
  int32_t dim;
  float* w;
  float const* g;
  float* wide[2];
};

// The second half of an array of sums is added to the first, until one is left.
template <int count>
float fold(float* sums) {
  if constexpr (count == 1) return sums[0];
  constexpr int kHalf = count / 2;
  for (int j = 0; j < kHalf; ++j) sums[j] += sums[j + kHalf];
  return fold<kHalf>(sums);
}

// Like sum_of_squares: 16 sums; column i is added to number i % 16, wherever the row lies. The loop
// over the sums is the outer one, so a compiler that vectorises it keeps vectors of them in
// registers.
template <int k, class Functor>
RowSums2 sum_columns(Functor const functor, RowFactors const factors, RowColumns const row) {
  constexpr int kSums = 16;
  float a[kSums] = {}, b[kSums] = {};
  auto const add = [&](int32_t i, RowSums2& sum) {
    float const wide[2] = {row.wide[0][i], row.wide[1][i]};
    functor.template add<k>(factors, row.w[i], row.g[i], wide, sum);
  };
  auto const turns = row.dim / kSums;
  if (turns > 0) {
    DYNEMB_INDEPENDENT
    for (int j = 0; j < kSums; ++j) {
      RowSums2 sum{};
      int32_t turn = 0;
      do {  // a test before the first turn would leave the outer loop without vectors
        add(turn * kSums + j, sum);
      } while (++turn < turns);
      a[j] = sum.a;
      b[j] = sum.b;
    }
  }
#pragma GCC unroll 1
  for (int32_t i = turns * kSums, j = 0; i < row.dim; ++i, ++j) {
    __asm__ volatile("");  // few turns: vectors would be code that seldom runs
    RowSums2 sum{a[j], b[j]};
    add(i, sum);
    a[j] = sum.a;
    b[j] = sum.b;
  }
  return {fold<kSums>(a), fold<kSums>(b)};
}

template <class Functor>
void update_columns(Functor const functor, RowFactors const factors, RowColumns const row) {
  DYNEMB_INDEPENDENT
  for (int32_t i = 0; i < row.dim; ++i) {
    float wide[2] = {};
    for (int s = 0; s < Functor::kWide; ++s) wide[s] = row.wide[s][i];
    row.w[i] = functor.update(factors, row.w[i], row.g[i], wide);
    for (int s = 0; s < Functor::kWide; ++s) row.wide[s][i] = wide[s];
  }
}

// FTRL's usual power is a root. As a constant it leaves no call in the loop, so that vectors do it.
inline void update_columns(Ftrl functor, RowFactors const factors, RowColumns const row) {
  if (functor.power != 0.5f) return update_columns<Ftrl>(functor, factors, row);
  functor.power = 0.5f;
  update_columns<Ftrl>(functor, factors, row);
}

// The same numbers, of an origin that the compiler does not see. GCC 12 moves a branch of how they
// were computed into the loop over the columns, and then has no vectors for that loop.
inline RowFactors without_origin(RowFactors factors) {
  __asm__("" : "+m"(factors));
  return factors;
}

// Whether the row was updated: if not, nothing of it has changed.
template <class Functor>
bool update_columns_and_numbers(Functor const& functor, RowColumns const& row, RowNumbers& numbers,
                                bool skips) {
  RowFactors factors{};
  functor.begin(numbers, factors);
  auto const dim = static_cast<float>(row.dim);
  auto const stages = functor.stages();
  auto const are_used = [&](RowSums2 const& sums) {
    return !skips || (is_finite(sums.a) && is_finite(sums.b));
  };
  if (stages > 0) {
    auto const sums = sum_columns<0>(functor, without_origin(factors), row);
    if (!are_used(sums)) return false;
    functor.template finish<0>(sums, dim, numbers, factors);
  }
  if (stages > 1) {
    auto const sums = sum_columns<1>(functor, without_origin(factors), row);
    if (!are_used(sums)) return false;
    functor.template finish<1>(sums, dim, numbers, factors);
  }
  update_columns(functor, without_origin(factors), row);
  return true;
}

}  // namespace dynemb::cpu
