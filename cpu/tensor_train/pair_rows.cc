// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tensor_train/pair_rows.cc: rows that are products of two factors. A prefix is transposed once
// for all of its rows: then the columns of a product are vectors, and nothing is summed across
// their lanes.
#include "core/pair_rows.h"

#include <algorithm>

#include "cpu/loops/buffer.h"
#include "cpu/loops/isa.h"
#include "cpu/table_ops.h"
#include "cpu/tensor_train/floats8.h"
#include "cpu/tensor_train/wide_suffixes.h"

namespace dynemb::cpu {
namespace {

constexpr int64_t kPrefixesOfTask = 32;

class Products {
 public:
  Products(PairRowsOf<float> const& args, float* columns)
      : args_(args), shape_(args.shape), padded_(whole_blocks(shape_.m)), columns_(columns) {}

  void rows_of(int64_t prefix) const {
    auto const range = rows_of_prefix(shape_, prefix);
    if (range.begin >= range.end) return;
    transpose(args_.prefix + prefix_offset(shape_, prefix));
    for (auto row = range.begin; row < range.end; ++row) {
      auto* const out = args_.rows + row * shape_.m * shape_.n;
      if (has_suffix(shape_, row)) {
        auto const suffix = int64_t{shape_.of_suffix[row]} * shape_.k * shape_.n;
        multiply(args_.suffix + suffix, out);
      } else {
        std::fill_n(out, int64_t{shape_.m} * shape_.n, 0.0f);
      }
    }
  }

 private:
  void transpose(float const* prefix) const {
    for (int32_t m = 0; m < shape_.m; ++m) {
      auto const* const row = prefix + prefix_row_offset(shape_, m);
      for (int32_t k = 0; k < shape_.k; ++k) columns_[int64_t{k} * padded_ + m] = row[k];
    }
  }

  void multiply(float const* suffix, float* out) const {
    for (int32_t block = 0; block < shape_.m; block += kBlock) {
      int32_t n = 0;
      for (; n + 4 <= shape_.n; n += 4) columns<4>(block, suffix + n, n, out);
      for (; n < shape_.n; ++n) columns<1>(block, suffix + n, n, out);
    }
  }

  // Computes a block of rows of the product, and so many of its columns.
  template <int kColumns>
  void columns(int32_t block, float const* suffix, int32_t first, float* out) const {
    Floats8 sums[kColumns][2] = {};
    auto const* column = columns_ + block;
    for (int32_t k = 0; k < shape_.k; ++k) {
      auto const low = *lanes_at(column), high = *lanes_at(column + kLanes);
      for (int c = 0; c < kColumns; ++c) {
        sums[c][0] += low * suffix[c];
        sums[c][1] += high * suffix[c];
      }
      column += padded_;
      suffix += shape_.n;
    }
    auto const count = std::min(kBlock, shape_.m - block);
    for (int c = 0; c < kColumns; ++c) {
      auto const* const own = reinterpret_cast<float const*>(sums[c]);
      auto* const to = out + int64_t{block} * shape_.n + first + c;
      for (int32_t m = 0; m < count; ++m) to[int64_t{m} * shape_.n] = own[m];
    }
  }

  PairRowsOf<float> const& args_;
  PairShape const& shape_;
  int32_t padded_;
  float* columns_;  // [k, padded]: the prefix, zeros behind it
};

}  // namespace

void float_pair_rows(PairRowsOf<float> const& args, ThreadPool const& given) {
  // Two threads never write one row, whatever the starts are.
  auto const each_row_once = prefixes_share_no_row(args.shape);
  if (each_row_once && has_wide_suffixes(args.shape)) return wide_pair_rows(args, given);
  auto const pool = each_row_once ? given : ThreadPool{};
  auto const size = static_cast<size_t>(args.shape.k) * size_t(whole_blocks(args.shape.m));
  for_each_range(pool, args.shape.num_prefixes, kPrefixesOfTask, [&](int64_t begin, int64_t end) {
    Buffer<float> columns(size);
    std::fill_n(columns.data(), size, 0.0f);
    with_isa([&](auto) {
      Products const products(args, columns.data());
      for (auto prefix = begin; prefix < end; ++prefix) products.rows_of(prefix);
    });
  });
}

}  // namespace dynemb::cpu
