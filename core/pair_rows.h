// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/pair_rows.h: rows that are products of two factors, as in a tensor train (Oseledets 2011).
//
// Rows come in order of their prefix. So a prefix is read once for all of its rows, and its
// gradient is complete when the last of them has been seen.
//
// `starts` and `of_suffix` are data: a range is clamped to the rows that exist, and a row whose
// suffix does not exist is zeros and has no gradient. What stands in rows of no prefix is
// undefined, and they must have no suffix.
#pragma once

#include <cstdint>

#include "core/args.h"
#include "core/macros.h"

namespace dynemb {

struct RowRange {
  int64_t begin, end;
};

// PairShape::exact of factors of bfloat16: both factors, rows and their gradients, and gradients of
// prefixes. Those of suffixes, sums of many rows, are float32.
constexpr int32_t kHalfFactors = 2;

DYNEMB_HD bool is_half(PairShape const& shape) { return shape.exact == kHalfFactors; }

// A call with numbers of a known type: float, or BFloat16 if the shape is half.
template <class Number>
struct PairRowsOf {
  PairShape shape;
  Number const* prefix;
  Number const* suffix;
  Number* rows;
};

template <class Number>
struct PairGradientsOf {
  PairShape shape;
  Number const* prefix;
  Number const* suffix;
  Number const* d_rows;
  Number* d_prefix;
  float* d_suffix;
};

template <class Number>
PairRowsOf<Number> numbers_of(PairRowsArgs const& args) {
  return {args.shape, reinterpret_cast<Number const*>(args.prefix),
          reinterpret_cast<Number const*>(args.suffix), reinterpret_cast<Number*>(args.rows)};
}

template <class Number>
PairGradientsOf<Number> numbers_of(PairGradientsArgs const& args) {
  return {args.shape,
          reinterpret_cast<Number const*>(args.prefix),
          reinterpret_cast<Number const*>(args.suffix),
          reinterpret_cast<Number const*>(args.d_rows),
          reinterpret_cast<Number*>(args.d_prefix),
          args.d_suffix};
}

DYNEMB_HD RowRange clamped_rows(PairShape const& shape, int64_t begin, int64_t end) {
  return {begin < 0 ? 0 : begin, end < shape.num_rows ? end : shape.num_rows};
}

DYNEMB_HD RowRange rows_of_prefix(PairShape const& shape, int64_t prefix) {
  return clamped_rows(shape, shape.starts[prefix], shape.starts[prefix + 1]);
}

// Whether each row has one prefix at most. If not, rows and gradients are still written within
// their arrays, but by more than one prefix.
inline bool prefixes_share_no_row(PairShape const& shape) {
  for (int64_t prefix = 0; prefix < shape.num_prefixes; ++prefix) {
    if (shape.starts[prefix] > shape.starts[prefix + 1]) return false;
  }
  return true;
}

// Where a prefix begins, and then its row m.
DYNEMB_HD int64_t prefix_offset(PairShape const& shape, int64_t prefix) {
  // In 32 bits: a division of 64 takes a GPU a hundred instructions.
  auto const outer = static_cast<uint32_t>(prefix) / static_cast<uint32_t>(shape.inner_prefixes);
  auto const segment = int64_t{outer} * shape.inner_prefixes * (shape.segments - 1) + prefix;
  return segment * shape.inner_m * shape.k;
}

DYNEMB_HD int64_t prefix_row_offset(PairShape const& shape, int32_t m) {
  auto const outer = m / shape.inner_m;
  auto const inner = m - outer * shape.inner_m;
  return (outer * shape.inner_prefixes * shape.inner_m + inner) * shape.k;
}

// Any number may be given as the suffix of a row.
DYNEMB_HD bool is_suffix(PairShape const& shape, int32_t number) {
  return static_cast<uint32_t>(number) < static_cast<uint64_t>(shape.num_suffixes);
}

DYNEMB_HD bool has_suffix(PairShape const& shape, int64_t row) {
  return is_suffix(shape, shape.of_suffix[row]);
}

// The sizes that factors of bfloat16 may have: those of the kernels that read them.
DYNEMB_HD bool may_be_half(PairShape const& shape) {
  return shape.m == 16 && (shape.k == 32 || shape.k == 64) && (shape.n == 4 || shape.n == 8) &&
         shape.num_suffixes <= 2048;
}

// The first prefix that the share `share` of `shares` has. Shares have about as many rows each, and
// follow from the data alone, so sums over them have the same bits in every run.
inline int64_t first_prefix_of_share(PairShape const& shape, int64_t share, int64_t shares) {
  if (share <= 0) return 0;
  if (share >= shares) return shape.num_prefixes;
  auto const first_row = static_cast<int64_t>(shape.starts[shape.num_prefixes]) * share / shares;
  int64_t low = 0, high = shape.num_prefixes;
  while (low < high) {
    auto const middle = (low + high) / 2;
    if (shape.starts[middle] < first_row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace dynemb
