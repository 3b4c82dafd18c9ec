// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>

#include "tests/fuzz/data.h"

namespace dynemb::fuzz {
namespace {

// Factors of rows; `starts` and `of_suffix` are in order, or any numbers.
struct Factors {
  int64_t m, k, n;
  Array prefix, suffix, starts, of_suffix;
  bool in_order;
  int64_t segments = 1, inner = 1;
  XLA_FFI_DataType dtype = kF32;  // of factors, rows and their gradients

  // Prefix p lies in an array [p / inner, segments, inner, m / segments, k].
  int64_t prefix_at(int64_t p, int64_t row, int64_t column) const {
    auto const of_segment = m / segments;
    auto const segment = (p / inner * segments + row / of_segment) * inner + p % inner;
    return (segment * of_segment + row % of_segment) * k + column;
  }
};

Factors add_factors(Call& call, Random& random) {
  Factors f{
      random.between(1, 20), random.between(1, 40), random.between(1, 9), {}, {}, {}, {}, true};
  if (random.one_in(3)) {  // a suffix larger than its prefix, of whole vectors
    f.n = random.of<int64_t>({16, 32, 48});
    f.m = random.between(1, 15);
    f.k = random.between(1, 16);
  }
  if (random.one_in(5)) {  // sizes that may be bfloat16, whose numbers may be anything
    f.m = 16;
    f.k = random.of<int64_t>({32, 64});
    f.n = random.of<int64_t>({4, 8});
    f.dtype = random.one_in(4) ? kF32 : XLA_FFI_DataType_BF16;
  }
  auto const prefixes = random.of<int64_t>({0, 1, 9, 40}),
             suffixes = random.of<int64_t>({1, 7, 30});
  f.in_order = random.one_in(2);
  if (f.m % 2 == 0) f.segments = random.of<int64_t>({1, 2, f.m});
  f.inner = prefixes % 3 == 0 ? random.of<int64_t>({1, 3}) : random.of<int64_t>({1, prefixes});
  f.prefix = call.operand(f.dtype, {prefixes * f.segments, f.m / f.segments * f.k});
  f.suffix = call.operand(f.dtype, {suffixes, f.k * f.n});
  fill_floats(random, f.prefix);
  fill_floats(random, f.suffix);
  f.starts = call.operand(kS32, {prefixes + 1});
  int64_t next = 0;
  for (int64_t p = 0; p <= prefixes; ++p) {
    f.starts.data<int32_t>()[p] = static_cast<int32_t>(f.in_order ? next : random.hostile());
    next += random.below(suffixes + 1);
  }
  auto const last = f.starts.data<int32_t>()[prefixes];
  auto const rows = f.in_order ? int64_t{last} : random.below(60);
  f.of_suffix = call.operand(kS32, {rows});
  for (int64_t p = 0; f.in_order && p < prefixes; ++p) {  // each suffix of a prefix once
    auto const begin = f.starts.data<int32_t>()[p];
    for (auto i = begin; i < f.starts.data<int32_t>()[p + 1]; ++i) {
      f.of_suffix.data<int32_t>()[i] = i - begin;
    }
  }
  for (int64_t i = 0; !f.in_order && i < rows; ++i) {
    f.of_suffix.data<int32_t>()[i] = static_cast<int32_t>(random.hostile());
  }
  scalar(call, "rank", f.k);
  scalar(call, "segments", f.segments);
  scalar(call, "inner", f.inner);
  scalar(call, "exact", random.below(2));
  return f;
}

bool is_near(double found, double truth, double scale) {
  return std::abs(found - truth) <= 1e-4 * (1 + scale);
}

}  // namespace

Call make_distinct(World&, Random& random) {
  Call call;
  auto const n = random.below(200), prefixes = random.of<int64_t>({0, 1, 9, 400});
  auto const suffixes = random.between(1, 30);
  auto const limit = random.of<int64_t>({0, prefixes * suffixes, 1000, 0xffffffff});
  auto const numbers = call.operand(kU32, {n});
  for (int64_t i = 0; i < n; ++i) {
    auto const number = random.one_in(3) ? random.hostile() : random.below(prefixes * suffixes + 9);
    numbers.data<uint32_t>()[i] = static_cast<uint32_t>(number);
  }
  scalar(call, "limit", limit);
  scalar(call, "suffixes", suffixes);
  auto const values = call.result(kU32, {n}), inverse = call.result(kS32, {n});
  auto const ranks = call.result(kS32, {n}), positions = call.result(kS32, {n});
  auto const count = call.result(kS32, {1}), starts = call.result(kS32, {prefixes + 1});
  call.result(kS32, {n});
  finish(call);
  call.check = [=] {
    auto const values_end = values.data<uint32_t>() + count.data<int32_t>()[0];
    expect(std::is_sorted(values.data<uint32_t>(), values_end), "values in order");
    for (int64_t i = 0; i < n; ++i) {
      auto const number = numbers.data<uint32_t>()[i];
      auto const rank = inverse.data<int32_t>()[i];
      expect((rank < 0) == (number >= limit), "a number without a row");
      expect(rank < 0 || values.data<uint32_t>()[rank] == number, "the value of a number");
      auto const position = positions.data<int32_t>()[i];
      expect(ranks.data<int32_t>()[i] == inverse.data<int32_t>()[position], "a rank in order");
    }
    for (int64_t p = 0; p <= prefixes; ++p) {
      auto const below = std::count_if(values.data<uint32_t>(), values_end,
                                       [&](uint32_t v) { return v / suffixes < p; });
      expect(starts.data<int32_t>()[p] == below, "values of lower prefixes");
    }
  };
  return call;
}

Call make_pair_rows(World&, Random& random) {
  Call call;
  auto const f = add_factors(call, random);
  auto const rows = call.result(f.dtype, {f.of_suffix.dims[0], f.m * f.n});
  finish(call);
  if (!f.in_order || f.dtype != kF32) return call;
  call.check = [f, rows] {
    for (int64_t p = 0; p + 1 < f.starts.dims[0]; ++p) {
      for (int64_t i = f.starts.data<int32_t>()[p]; i < f.starts.data<int32_t>()[p + 1]; ++i) {
        auto const* const suffix =
            f.suffix.data<float>() + f.of_suffix.data<int32_t>()[i] * f.k * f.n;
        for (int64_t at = 0; at < f.m * f.n; ++at) {
          double sum = 0, scale = 0;
          for (int64_t k = 0; k < f.k; ++k) {
            auto const term = double{f.prefix.data<float>()[f.prefix_at(p, at / f.n, k)]} *
                              double{suffix[k * f.n + at % f.n]};
            sum += term;
            scale += std::abs(term);
          }
          expect(is_near(rows.data<float>()[i * f.m * f.n + at], sum, scale), "a product");
        }
      }
    }
  };
  return call;
}

Call make_pair_gradients(World&, Random& random) {
  Call call;
  auto const f = add_factors(call, random);
  auto const d_rows = call.operand(f.dtype, {f.of_suffix.dims[0], f.m * f.n});
  fill_floats(random, d_rows);
  auto const d_prefix = call.result(f.dtype, f.prefix.dims),
             d_suffix = call.result(kF32, f.suffix.dims);
  finish(call);
  if (!f.in_order || f.dtype != kF32) return call;
  call.check = [f, d_rows, d_prefix, d_suffix] {
    // <gradient, factor> is <gradient of rows, rows>, of each factor.
    double rows = 0, of_prefix = 0, of_suffix = 0, scale = 0;
    for (int64_t i = 0; i < f.prefix.count(); ++i) {
      of_prefix += double{d_prefix.data<float>()[i]} * double{f.prefix.data<float>()[i]};
    }
    for (int64_t i = 0; i < f.suffix.count(); ++i) {
      of_suffix += double{d_suffix.data<float>()[i]} * double{f.suffix.data<float>()[i]};
    }
    for (int64_t p = 0; p + 1 < f.starts.dims[0]; ++p) {
      for (int64_t i = f.starts.data<int32_t>()[p]; i < f.starts.data<int32_t>()[p + 1]; ++i) {
        auto const* const suffix =
            f.suffix.data<float>() + f.of_suffix.data<int32_t>()[i] * f.k * f.n;
        for (int64_t at = 0; at < f.m * f.n; ++at) {
          for (int64_t k = 0; k < f.k; ++k) {
            auto const term = double{f.prefix.data<float>()[f.prefix_at(p, at / f.n, k)]} *
                              double{suffix[k * f.n + at % f.n]} *
                              double{d_rows.data<float>()[i * f.m * f.n + at]};
            rows += term;
            scale += std::abs(term);
          }
        }
      }
    }
    expect(is_near(of_prefix, rows, scale), "gradients of prefixes");
    expect(is_near(of_suffix, rows, scale), "gradients of suffixes");
  };
  return call;
}

}  // namespace dynemb::fuzz
