// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tensor_train/wide_gradients.cc: gradients of factors where the suffix is the larger one. The
// gradient of a suffix is complete with its last row. What a row adds to its prefix is written
// down, and then summed in order of the rows: the same bits with any number of threads.
#include <algorithm>

#include "core/pair_rows.h"
#include "cpu/loops/isa.h"
#include "cpu/tensor_train/wide_suffixes.h"

namespace dynemb::cpu {
namespace {

constexpr int64_t kRowsAtOnce = 8;  // their gradients stay in the first-level cache
constexpr int64_t kPrefixesOfTask = 64;

class SuffixGradients {
 public:
  // `to_prefix` is [num_rows, m, padded]: what each row adds to its prefix.
  SuffixGradients(PairGradientsOf<float> const& args, RowsOfSuffixes const& groups,
                  float* to_prefix)
      : args_(args),
        shape_(args.shape),
        groups_(groups),
        padded_(whole_blocks(shape_.k)),
        to_prefix_(to_prefix),
        memory_(static_cast<size_t>(int64_t{padded_} * 2 * shape_.n +
                                    kRowsAtOnce * shape_.m * (padded_ + kBlock))),
        transposed_(memory_.data()),
        sums_(transposed_ + int64_t{padded_} * shape_.n),
        prefixes_(sums_ + int64_t{padded_} * shape_.n),
        columns_(prefixes_ + kRowsAtOnce * shape_.m * padded_) {}

  void of(int64_t suffix) {
    auto const begin = groups_.begin(suffix), end = groups_.end(suffix);
    auto* const to = args_.d_suffix + suffix * shape_.k * shape_.n;
    if (begin == end) {
      std::fill_n(to, int64_t{shape_.k} * shape_.n, 0.0f);
      return;
    }
    transpose(args_.suffix + suffix * shape_.k * shape_.n);
    std::fill_n(sums_, int64_t{padded_} * shape_.n, 0.0f);
    for (auto at = begin; at < end; at += kRowsAtOnce) {
      auto const last = std::min(end, at + kRowsAtOnce);
      for (auto one = at; one < last; ++one) add_to_prefix(groups_.row(one));
      copy_prefixes(at, last);
      add_to_suffix(at, last);
    }
    std::copy_n(sums_, int64_t{shape_.k} * shape_.n, to);
  }

 private:
  void transpose(float const* suffix) {
    std::fill_n(transposed_, int64_t{padded_} * shape_.n, 0.0f);
    for (int32_t k = 0; k < shape_.k; ++k) {
      for (int32_t n = 0; n < shape_.n; ++n) {
        transposed_[int64_t{n} * padded_ + k] = suffix[int64_t{k} * shape_.n + n];
      }
    }
  }

  float const* d_row(int64_t row) const { return args_.d_rows + row * shape_.m * shape_.n; }

  void add_to_prefix(int64_t row) {
    auto* const to = to_prefix_ + row * shape_.m * padded_;
    std::fill_n(to, int64_t{shape_.m} * padded_, 0.0f);
    int32_t m = 0;
    for (; m + 4 <= shape_.m; m += 4) rows_of_prefix_gradient<4>(d_row(row), m, to);
    for (; m < shape_.m; ++m) rows_of_prefix_gradient<1>(d_row(row), m, to);
  }

  template <int kRows>
  void rows_of_prefix_gradient(float const* d_row, int32_t m, float* to) {
    for (int32_t k = 0; k < padded_; k += kBlock) {
      add_block<kRows>(d_row + int64_t{m} * shape_.n, shape_.n, 1, transposed_ + k, padded_,
                       shape_.n, to + int64_t{m} * padded_ + k, padded_);
    }
  }

  // Prefixes are copied side by side, so that the sums below read them in order.
  void copy_prefixes(int64_t begin, int64_t end) {
    auto* to = prefixes_;
    for (auto at = begin; at < end; ++at) {
      auto const* const from = args_.prefix + prefix_offset(shape_, groups_.prefix(at));
      for (int32_t m = 0; m < shape_.m; ++m, to += padded_) {
        std::copy_n(from + prefix_row_offset(shape_, m), shape_.k, to);
        std::fill(to + shape_.k, to + padded_, 0.0f);
      }
    }
  }

  // All terms of a sum in one go, so that it stays in registers.
  void add_to_suffix(int64_t begin, int64_t end) {
    auto const terms = (end - begin) * shape_.m;
    for (int32_t n = 0; n < shape_.n; n += kBlock) {
      auto* to = columns_;
      for (auto at = begin; at < end; ++at) {
        auto const* from = d_row(groups_.row(at)) + n;
        for (int32_t m = 0; m < shape_.m; ++m, from += shape_.n, to += kBlock) {
          std::copy_n(from, kBlock, to);
        }
      }
      for (int32_t k = 0; k < padded_; k += 4) {
        add_block<4>(prefixes_ + k, 1, padded_, columns_, kBlock, terms,
                     sums_ + int64_t{k} * shape_.n + n, shape_.n);
      }
    }
  }

  PairGradientsOf<float> const& args_;
  PairShape const& shape_;
  RowsOfSuffixes const& groups_;
  int32_t padded_;
  float* to_prefix_;
  Buffer<float> memory_;
  float* transposed_;  // [n, padded]: the suffix, zeros behind its ranks
  float* sums_;        // [padded, n]
  float* prefixes_;    // [kRowsAtOnce, m, padded]
  float* columns_;     // [kRowsAtOnce, m, kBlock]: some columns of the rows' gradients
};

void sum_prefixes(PairGradientsOf<float> const& args, ThreadPool const& pool,
                  float const* to_prefix) {
  auto const& shape = args.shape;
  auto const padded = int64_t{whole_blocks(shape.k)};
  for_each_range(pool, shape.num_prefixes, kPrefixesOfTask, [&](int64_t begin, int64_t end) {
    for (auto prefix = begin; prefix < end; ++prefix) {
      auto const range = rows_of_prefix(shape, prefix);
      for (int32_t m = 0; m < shape.m; ++m) {
        auto* const to = args.d_prefix + prefix_offset(shape, prefix) + prefix_row_offset(shape, m);
        std::fill_n(to, shape.k, 0.0f);
        for (auto row = range.begin; row < range.end; ++row) {
          if (!has_suffix(shape, row)) continue;
          auto const* const from = to_prefix + (row * shape.m + m) * padded;
          for (int32_t k = 0; k < shape.k; ++k) to[k] += from[k];
        }
      }
    }
  });
}

}  // namespace

void wide_pair_gradients(PairGradientsOf<float> const& args, ThreadPool const& pool) {
  auto const& shape = args.shape;
  RowsOfSuffixes const groups(shape);
  auto const width = int64_t{shape.m} * whole_blocks(shape.k);
  Buffer<float> to_prefix(static_cast<size_t>(shape.num_rows * width));
  for_each_range(pool, shape.num_suffixes, kSuffixesOfWideTask, [&](int64_t begin, int64_t end) {
    SuffixGradients gradients(args, groups, to_prefix.data());
    with_isa([&](auto) {
      for (auto suffix = begin; suffix < end; ++suffix) gradients.of(suffix);
    });
  });
  sum_prefixes(args, pool, to_prefix.data());
}

}  // namespace dynemb::cpu
