// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tensor_train/pair_gradients.cc: gradients of both factors of rows. The gradient of a prefix
// is complete with its last row. Those of suffixes are summed in a few shares of the rows, and the
// shares in order, so that the bits do not depend on the number of threads.
#include <algorithm>

#include "core/pair_rows.h"
#include "cpu/loops/buffer.h"
#include "cpu/loops/isa.h"
#include "cpu/table_ops.h"
#include "cpu/tensor_train/floats8.h"
#include "cpu/tensor_train/wide_suffixes.h"

namespace dynemb::cpu {
namespace {

constexpr int64_t kMostShares = 16;
constexpr int64_t kSuffixesOfTask = 64;

// Factors with their ranks side by side: [n, padded] of a suffix, [m, padded] of a prefix.
struct Layout {
  explicit Layout(PairShape const& shape)
      : shape(shape),
        padded(whole_blocks(shape.k)),
        suffix_size(int64_t{shape.n} * padded),
        prefix_size(int64_t{shape.m} * padded) {}

  PairShape const& shape;
  int32_t padded;
  int64_t suffix_size, prefix_size;
};

class ShareGradients {
 public:
  // `memory` holds two prefixes; `sums` is zeros.
  ShareGradients(PairGradientsOf<float> const& args, Layout const& layout, float const* suffixes,
                 float* sums, float* memory)
      : args_(args),
        shape_(args.shape),
        layout_(layout),
        suffixes_(suffixes),
        sums_(sums),
        prefix_(memory),
        d_prefix_(memory + layout.prefix_size) {}

  void add(int64_t prefix) const {
    auto const range = rows_of_prefix(shape_, prefix);
    auto const first = prefix_offset(shape_, prefix);
    if (range.begin >= range.end) {
      for (int32_t m = 0; m < shape_.m; ++m) {
        std::fill_n(args_.d_prefix + first + prefix_row_offset(shape_, m), shape_.k, 0.0f);
      }
      return;
    }
    std::fill_n(prefix_, 2 * layout_.prefix_size, 0.0f);
    for (int32_t m = 0; m < shape_.m; ++m) {
      std::copy_n(args_.prefix + first + prefix_row_offset(shape_, m), shape_.k,
                  prefix_ + int64_t{m} * layout_.padded);
    }
    for (auto row = range.begin; row < range.end; ++row) {
      if (has_suffix(shape_, row)) add_row(row);
    }
    for (int32_t m = 0; m < shape_.m; ++m) {
      std::copy_n(d_prefix_ + int64_t{m} * layout_.padded, shape_.k,
                  args_.d_prefix + first + prefix_row_offset(shape_, m));
    }
  }

 private:
  void add_row(int64_t row) const {
    auto const suffix = int64_t{shape_.of_suffix[row]} * layout_.suffix_size;
    auto const* const d_row = args_.d_rows + row * shape_.m * shape_.n;
    for (int32_t block = 0; block < shape_.k; block += kBlock) {
      int32_t n = 0;
      for (; n + 2 <= shape_.n; n += 2) add_columns<2>(block, n, suffix, d_row + n);
      if (n < shape_.n) add_columns<1>(block, n, suffix, d_row + n);
    }
  }

  // A block of ranks, and so many columns of the suffix.
  template <int kColumns>
  void add_columns(int32_t block, int32_t n, int64_t suffix, float const* d_row) const {
    auto const at = suffix + int64_t{n} * layout_.padded + block;
    Floats8 factors[kColumns][2], sums[kColumns][2] = {};
    for (int c = 0; c < kColumns; ++c) {
      auto const* const from = suffixes_ + at + int64_t{c} * layout_.padded;
      factors[c][0] = *lanes_at(from);
      factors[c][1] = *lanes_at(from + kLanes);
    }
    auto const* prefix = prefix_ + block;
    auto* d_prefix = d_prefix_ + block;
    for (int32_t m = 0; m < shape_.m; ++m) {
      auto const low = *lanes_at(prefix), high = *lanes_at(prefix + kLanes);
      auto d_low = *lanes_at(d_prefix), d_high = *lanes_at(d_prefix + kLanes);
      for (int c = 0; c < kColumns; ++c) {
        auto const gradient = d_row[c];
        d_low += factors[c][0] * gradient;
        d_high += factors[c][1] * gradient;
        sums[c][0] += low * gradient;
        sums[c][1] += high * gradient;
      }
      *lanes_at(d_prefix) = d_low;
      *lanes_at(d_prefix + kLanes) = d_high;
      prefix += layout_.padded;
      d_prefix += layout_.padded;
      d_row += shape_.n;
    }
    for (int c = 0; c < kColumns; ++c) {
      auto* const to = sums_ + at + int64_t{c} * layout_.padded;
      *lanes_at(to) += sums[c][0];
      *lanes_at(to + kLanes) += sums[c][1];
    }
  }

  PairGradientsOf<float> const& args_;
  PairShape const& shape_;
  Layout const& layout_;
  float const* suffixes_;  // [num_suffixes, n, padded]
  float* sums_;            // the same of their gradients
  float* prefix_;          // [m, padded]
  float* d_prefix_;        // [m, padded]
};

// Suffixes with their ranks side by side, zeros behind them.
void transpose_suffixes(PairGradientsOf<float> const& args, Layout const& layout,
                        ThreadPool const& pool, float* to) {
  auto const& shape = args.shape;
  for_each_range(pool, shape.num_suffixes, kSuffixesOfTask, [&](int64_t begin, int64_t end) {
    std::fill(to + begin * layout.suffix_size, to + end * layout.suffix_size, 0.0f);
    for (auto suffix = begin; suffix < end; ++suffix) {
      auto const* const from = args.suffix + suffix * shape.k * shape.n;
      auto* const own = to + suffix * layout.suffix_size;
      for (int32_t n = 0; n < shape.n; ++n) {
        for (int32_t k = 0; k < shape.k; ++k) {
          own[int64_t{n} * layout.padded + k] = from[int64_t{k} * shape.n + n];
        }
      }
    }
  });
}

void sum_shares(PairGradientsOf<float> const& args, Layout const& layout, ThreadPool const& pool,
                float const* sums, int64_t shares) {
  auto const& shape = args.shape;
  auto const stride = shape.num_suffixes * layout.suffix_size;
  for_each_range(pool, shape.num_suffixes, kSuffixesOfTask, [&](int64_t begin, int64_t end) {
    for (auto suffix = begin; suffix < end; ++suffix) {
      auto const* const own = sums + suffix * layout.suffix_size;
      auto* const to = args.d_suffix + suffix * shape.k * shape.n;
      for (int32_t k = 0; k < shape.k; ++k) {
        for (int32_t n = 0; n < shape.n; ++n) {
          auto const at = int64_t{n} * layout.padded + k;
          float sum = 0;
          for (int64_t share = 0; share < shares; ++share) sum += own[share * stride + at];
          to[int64_t{k} * shape.n + n] = sum;
        }
      }
    }
  });
}

}  // namespace

void float_pair_gradients(PairGradientsOf<float> const& args, ThreadPool const& given) {
  auto const& shape = args.shape;
  // Two threads never write one gradient, whatever the starts are.
  auto const each_row_once = prefixes_share_no_row(shape);
  if (each_row_once && has_wide_suffixes(shape)) return wide_pair_gradients(args, given);
  auto const pool = each_row_once ? given : ThreadPool{};
  Layout const layout(shape);
  auto const all = static_cast<size_t>(shape.num_suffixes * layout.suffix_size);
  // Fewer shares where the sums would be longer than the rows.
  auto const wanted = shape.num_rows / std::max<int64_t>(1, shape.num_suffixes);
  auto const shares = std::clamp<int64_t>(wanted, 1, kMostShares);
  Buffer<float> suffixes(all), sums(all * static_cast<size_t>(shares));
  transpose_suffixes(args, layout, pool, suffixes.data());
  for_each_chunk(pool, shares, [&](int64_t share) {
    auto* const own = sums.data() + static_cast<size_t>(share) * all;
    std::fill_n(own, all, 0.0f);
    Buffer<float> memory(2 * static_cast<size_t>(layout.prefix_size));
    auto const begin = first_prefix_of_share(shape, share, shares);
    auto const end = first_prefix_of_share(shape, share + 1, shares);
    with_isa([&](auto) {
      ShareGradients const gradients(args, layout, suffixes.data(), own, memory.data());
      for (auto prefix = begin; prefix < end; ++prefix) gradients.add(prefix);
    });
  });
  sum_shares(args, layout, pool, sums.data(), shares);
}

}  // namespace dynemb::cpu
