// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tensor_train/pairs.cc: rows of pairs of factors and their gradients. Factors of bfloat16 are
// for GPUs, where they halve what is read and written. A CPU widens them and narrows the results.
#include "core/pair_rows.h"
#include "core/value_type.h"
#include "cpu/loops/buffer.h"
#include "cpu/table_ops.h"
#include "cpu/tensor_train/wide_suffixes.h"

namespace dynemb::cpu {
namespace {

constexpr int64_t kNumbersOfTask = 1 << 16;

void widen(BFloat16 const* from, int64_t count, ThreadPool const& pool, float* to) {
  for_each_range(pool, count, kNumbersOfTask, [&](int64_t begin, int64_t end) {
    for (auto i = begin; i < end; ++i) to[i] = to_float(from[i]);
  });
}

void narrow(float const* from, int64_t count, ThreadPool const& pool, BFloat16* to) {
  for_each_range(pool, count, kNumbersOfTask, [&](int64_t begin, int64_t end) {
    for (auto i = begin; i < end; ++i) from_float(from[i], to + i);
  });
}

// Numbers of all prefixes and of all rows.
struct Counts {
  int64_t prefixes, suffixes, rows;

  explicit Counts(PairShape const& shape)
      : prefixes(shape.num_prefixes * shape.m * shape.k),
        suffixes(shape.num_suffixes * shape.k * shape.n),
        rows(shape.num_rows * shape.m * shape.n) {}
};

}  // namespace

void pair_rows(PairRowsArgs const& args, ThreadPool const& pool) {
  auto const& shape = args.shape;
  if (!is_half(shape)) return float_pair_rows(numbers_of<float>(args), pool);
  auto const half = numbers_of<BFloat16>(args);
  Counts const count(shape);
  Buffer<float> prefix(static_cast<size_t>(count.prefixes)), rows(static_cast<size_t>(count.rows));
  Buffer<float> suffix(static_cast<size_t>(count.suffixes));
  widen(half.prefix, count.prefixes, pool, prefix.data());
  widen(half.suffix, count.suffixes, pool, suffix.data());
  float_pair_rows({shape, prefix.data(), suffix.data(), rows.data()}, pool);
  narrow(rows.data(), count.rows, pool, half.rows);
}

void pair_gradients(PairGradientsArgs const& args, ThreadPool const& pool) {
  auto const& shape = args.shape;
  if (!is_half(shape)) return float_pair_gradients(numbers_of<float>(args), pool);
  auto const half = numbers_of<BFloat16>(args);
  Counts const count(shape);
  auto const of_prefixes = static_cast<size_t>(count.prefixes);
  Buffer<float> prefix(of_prefixes), d_prefix(of_prefixes), d_rows(static_cast<size_t>(count.rows));
  widen(half.prefix, count.prefixes, pool, prefix.data());
  Buffer<float> suffix(static_cast<size_t>(count.suffixes));
  widen(half.suffix, count.suffixes, pool, suffix.data());
  widen(half.d_rows, count.rows, pool, d_rows.data());
  float_pair_gradients(
      {shape, prefix.data(), suffix.data(), d_rows.data(), d_prefix.data(), args.d_suffix}, pool);
  narrow(d_prefix.data(), count.prefixes, pool, half.d_prefix);
}

}  // namespace dynemb::cpu
