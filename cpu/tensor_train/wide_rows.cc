// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tensor_train/wide_rows.cc: rows whose suffix is the larger factor, suffix by suffix.
#include <algorithm>

#include "core/pair_rows.h"
#include "cpu/loops/isa.h"
#include "cpu/tensor_train/wide_suffixes.h"

namespace dynemb::cpu {

RowsOfSuffixes::RowsOfSuffixes(PairShape const& shape)
    : starts_(static_cast<size_t>(shape.num_suffixes) + 2),
      rows_(static_cast<size_t>(shape.num_rows)),
      prefixes_(static_cast<size_t>(shape.num_rows)) {
  std::fill_n(starts_.data(), shape.num_suffixes + 2, int64_t{0});
  // Counts stand two places ahead. While rows are placed, starts_[s + 1] is the next place of s.
  auto const each = [&](auto const& function) {
    for (int64_t prefix = 0; prefix < shape.num_prefixes; ++prefix) {
      auto const range = rows_of_prefix(shape, prefix);
      for (auto row = range.begin; row < range.end; ++row) {
        if (has_suffix(shape, row)) function(prefix, row, starts_.data() + shape.of_suffix[row]);
      }
    }
  };
  each([](int64_t, int64_t, int64_t* of_suffix) { ++of_suffix[2]; });
  for (int64_t s = 0; s < shape.num_suffixes; ++s) starts_[s + 2] += starts_[s + 1];
  each([&](int64_t prefix, int64_t row, int64_t* of_suffix) {
    auto const place = of_suffix[1]++;
    rows_[place] = row;
    prefixes_[place] = prefix;
  });
}

namespace {

constexpr int64_t kRowsOfTask = 256;

void zero_rows_without_suffix(PairRowsOf<float> const& args, ThreadPool const& pool) {
  auto const& shape = args.shape;
  auto const width = int64_t{shape.m} * shape.n;
  for_each_range(pool, shape.num_rows, kRowsOfTask, [&](int64_t begin, int64_t end) {
    for (auto row = begin; row < end; ++row) {
      if (!has_suffix(shape, row)) std::fill_n(args.rows + row * width, width, 0.0f);
    }
  });
}

// Computes rows m to m + kRows of a product.
template <int kRows>
void multiply(PairShape const& shape, float const* prefix, float const* suffix, int32_t m,
              float* out) {
  auto const* const from = prefix + prefix_row_offset(shape, m);
  auto const stride =
      kRows == 1 ? 0 : prefix_row_offset(shape, m + 1) - prefix_row_offset(shape, m);
  auto* const to = out + int64_t{m} * shape.n;
  std::fill_n(to, int64_t{kRows} * shape.n, 0.0f);
  for (int32_t n = 0; n < shape.n; n += kBlock) {
    add_block<kRows>(from, stride, 1, suffix + n, shape.n, shape.k, to + n, shape.n);
  }
}

void row_of(PairRowsOf<float> const& args, int64_t row, int64_t prefix, float const* suffix) {
  auto const& shape = args.shape;
  auto const* const factor = args.prefix + prefix_offset(shape, prefix);
  auto* const out = args.rows + row * shape.m * shape.n;
  // Rows of a prefix are equally far apart within a segment, and where each is a segment.
  auto const run = shape.inner_m == 1 ? shape.m : shape.inner_m;
  for (int32_t begin = 0; begin < shape.m; begin += run) {
    auto const end = begin + run;
    auto m = begin;
    for (; m + 4 <= end; m += 4) multiply<4>(shape, factor, suffix, m, out);
    for (; m < end; ++m) multiply<1>(shape, factor, suffix, m, out);
  }
}

}  // namespace

void wide_pair_rows(PairRowsOf<float> const& args, ThreadPool const& pool) {
  RowsOfSuffixes const groups(args.shape);
  zero_rows_without_suffix(args, pool);
  for_each_range(
      pool, args.shape.num_suffixes, kSuffixesOfWideTask, [&](int64_t begin, int64_t end) {
        with_isa([&](auto) {
          for (auto suffix = begin; suffix < end; ++suffix) {
            auto const* const factor = args.suffix + suffix * args.shape.k * args.shape.n;
            for (auto at = groups.begin(suffix); at < groups.end(suffix); ++at) {
              row_of(args, groups.row(at), groups.prefix(at), factor);
            }
          }
        });
      });
}

}  // namespace dynemb::cpu
