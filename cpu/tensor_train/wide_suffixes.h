// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tensor_train/wide_suffixes.h: products whose suffix is the larger factor, as where a prefix
// is made of its own two cores. Rows are taken suffix by suffix: then the large factor and the sums
// of its gradient stay in the first-level cache for all rows that share them.
#pragma once

#include <cstdint>

#include "core/args.h"
#include "cpu/loops/buffer.h"
#include "cpu/loops/thread_pool.h"
#include "cpu/tensor_train/floats8.h"

namespace dynemb::cpu {

constexpr int64_t kSuffixesOfWideTask = 4;

// Whether these loops take a product. Its columns are whole vectors, and what they keep for a row,
// its part of the gradient of its prefix, is no larger than the row.
inline bool has_wide_suffixes(PairShape const& shape) {
  return shape.n > shape.m && shape.n >= shape.k && shape.n % kBlock == 0;
}

// The rows of each suffix, in order: those of suffix s are rows[starts[s]] to rows[starts[s + 1]].
// A row without a suffix is in none.
class RowsOfSuffixes {
 public:
  // Each row has one prefix at most, see prefixes_share_no_row.
  explicit RowsOfSuffixes(PairShape const& shape);

  int64_t begin(int64_t suffix) const { return starts_[suffix]; }
  int64_t end(int64_t suffix) const { return starts_[suffix + 1]; }
  int64_t row(int64_t place) const { return rows_[place]; }
  int64_t prefix(int64_t place) const { return prefixes_[place]; }

 private:
  Buffer<int64_t> starts_, rows_, prefixes_;
};

// Adds a product to `to`: kRows rows of `a`, times a block of columns of `b`, over `count` terms.
// Of `a`, rows are `a_row` apart and terms `a_term`; of `b`, terms are `b_term` apart.
template <int kRows>
inline void add_block(float const* a, int64_t a_row, int64_t a_term, float const* b, int64_t b_term,
                      int64_t count, float* to, int64_t to_row) {
  Floats8 sums[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    sums[r][0] = *lanes_at(to + r * to_row);
    sums[r][1] = *lanes_at(to + r * to_row + kLanes);
  }
  for (int64_t term = 0; term < count; ++term) {
    auto const low = *lanes_at(b), high = *lanes_at(b + kLanes);
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] += low * a[r * a_row];
      sums[r][1] += high * a[r * a_row];
    }
    a += a_term;
    b += b_term;
  }
  for (int r = 0; r < kRows; ++r) {
    *lanes_at(to + r * to_row) = sums[r][0];
    *lanes_at(to + r * to_row + kLanes) = sums[r][1];
  }
}

// These take any sizes (cpu/tensor_train/pair_rows.cc, pair_gradients.cc).
void float_pair_rows(PairRowsOf<float> const& args, ThreadPool const& pool);
void float_pair_gradients(PairGradientsOf<float> const& args, ThreadPool const& pool);

// These take wide suffixes only.
void wide_pair_rows(PairRowsOf<float> const& args, ThreadPool const& pool);
void wide_pair_gradients(PairGradientsOf<float> const& args, ThreadPool const& pool);

}  // namespace dynemb::cpu
