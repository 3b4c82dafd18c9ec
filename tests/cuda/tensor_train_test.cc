// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/tensor_train_test.cc: rows that are products of two factors, the gradients of
// prefixes, and what each row adds to its suffix, beside sums in double precision: whole tiles and
// not, prefixes in any order.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <random>
#include <vector>

#include "cuda/tensor_train/half_gradients.cuh"
#include "cuda/tensor_train/prefix_gradients.cuh"
#include "cuda/tensor_train/products.cuh"
#include "cuda/tensor_train/staged_suffixes.cuh"
#include "cuda/tensor_train/suffix_sums.cuh"
#include "tests/core/test_table.h"

namespace {

using namespace dynemb;
using namespace dynemb::cuda;

struct Sizes {
  int prefixes, suffixes, m, k, n;
  double density;  // of the rows that occur
  int segments = 1, inner = 1;
  bool summed = false;  // gradients of suffixes are, in registers
};

struct Pairs {
  PairShape shape{};
  std::vector<float> prefix, suffix, d_rows, rows, d_prefix, d_suffix, added;
  std::vector<int32_t> starts, of_suffix;

  Pairs(Sizes const& sizes, bool exact, std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<double> unit;
    auto const fill = [&](std::vector<float>& numbers, int count) {
      numbers.resize(size_t(count));
      for (auto& x : numbers) x = normal(random);
    };
    for (int p = 0; p < sizes.prefixes; ++p) {
      starts.push_back(int32_t(of_suffix.size()));
      for (int s = 0; s < sizes.suffixes; ++s) {
        if (unit(random) < sizes.density) of_suffix.push_back(unit(random) < 0.05 ? -1 : s);
      }
    }
    starts.push_back(int32_t(of_suffix.size()));
    auto const rows_count = int(of_suffix.size());
    fill(prefix, sizes.prefixes * sizes.m * sizes.k);
    fill(suffix, sizes.suffixes * sizes.k * sizes.n);
    fill(d_rows, rows_count * sizes.m * sizes.n);
    rows.assign(d_rows.size(), NAN);
    d_prefix.assign(prefix.size(), NAN);
    d_suffix.assign(suffix.size(), NAN);
    added.assign(of_suffix.size() * size_t(sizes.k * sizes.n), NAN);
    shape = {sizes.prefixes, sizes.suffixes, rows_count,
             sizes.m,        sizes.k,        sizes.n,
             sizes.inner,    sizes.segments, sizes.m / sizes.segments,
             exact ? 1 : 0,  starts.data(),  of_suffix.data()};
  }

  ProductsCall rows_call() {
    return {shape, prefix.data(), shape.m, shape.k, suffix.data(), rows.data()};
  }
  ProductsCall added_call() {
    return {shape, prefix.data(), shape.k, shape.m, d_rows.data(), added.data()};
  }
  PairGradientsOf<float> gradients_args() {
    return {shape, prefix.data(), suffix.data(), d_rows.data(), d_prefix.data(), d_suffix.data()};
  }
};

void check_close(std::vector<float> const& found, std::vector<double> const& truth, double error) {
  double scale = 1e-6;
  for (auto const x : truth) scale = std::max(scale, std::abs(x));
  for (size_t i = 0; i < truth.size(); ++i) CHECK(std::abs(found[i] - truth[i]) <= error * scale);
}

// False: these sizes are not summed in registers.
template <class Number>
bool sum_suffixes(PairGradientsOf<Number> const& args) {
  SumParts const parts(args.shape);
  if (parts.parts == 0) return false;
  Scratch measured(nullptr);
  measured.take<float>(parts.sums(args.shape));
  measured.take<RowRange32>(parts.ranges(args.shape));
  std::vector<char> memory(measured.used() + kScratchAlignment);
  auto const past = reinterpret_cast<uintptr_t>(memory.data()) % kScratchAlignment;
  auto* const aligned = memory.data() + (kScratchAlignment - past);
  CHECK(suffix_sums(args, parts, aligned, nullptr) == cudaSuccess);
  return true;
}

// Rows whose suffixes are in shared memory; none where these sizes have other kernels.
std::vector<float> stage_suffixes_of(Pairs& pairs) {
  std::vector<float> rows(pairs.rows.size(), NAN);
  auto staged = false;
  PairRowsOf<float> const args{pairs.shape, pairs.prefix.data(), pairs.suffix.data(), rows.data()};
  CHECK(staged_rows(args, 164 * 1024, nullptr, &staged) == cudaSuccess);
  return staged ? rows : std::vector<float>{};
}

// Holds sums in double precision.
struct Truth {
  std::vector<double> rows, d_prefix, d_suffix, added;
};

Truth truth_of(Pairs const& pairs) {
  auto const& shape = pairs.shape;
  auto const m_count = shape.m, k_count = shape.k, n_count = shape.n;
  std::vector<double> rows(pairs.rows.size()), d_prefix(pairs.prefix.size()),
      d_suffix(pairs.suffix.size()), added(pairs.added.size());
  auto const inner = static_cast<int>(shape.inner_prefixes);
  for (int p = 0; p < shape.num_prefixes; ++p) {
    for (auto i = pairs.starts[size_t(p)]; i < pairs.starts[size_t(p) + 1]; ++i) {
      auto const s = pairs.of_suffix[size_t(i)];
      for (int m = 0; m < m_count; ++m) {
        auto const segment = m / shape.inner_m, in_segment = m % shape.inner_m;
        auto const line = (p / inner * shape.segments + segment) * inner;
        auto const from = ((line + p % inner) * shape.inner_m + in_segment) * k_count;
        for (int n = 0; n < n_count; ++n) {
          auto const at = size_t((i * m_count + m) * n_count + n);
          for (int k = 0; k < k_count; ++k) {
            auto const a = size_t(from + k);
            auto const to = size_t((i * k_count + k) * n_count + n);
            added[to] += double{pairs.prefix[a]} * double{pairs.d_rows[at]};
            if (s < 0) continue;
            auto const b = size_t((s * k_count + k) * n_count + n);
            rows[at] += double{pairs.prefix[a]} * double{pairs.suffix[b]};
            d_prefix[a] += double{pairs.suffix[b]} * double{pairs.d_rows[at]};
            d_suffix[b] += double{pairs.prefix[a]} * double{pairs.d_rows[at]};
          }
        }
      }
    }
  }
  return {rows, d_prefix, d_suffix, added};
}

void check(Sizes const& sizes, bool exact) {
  std::mt19937 random(7);
  Pairs pairs(sizes, exact, random);
  CHECK(launch_products<false>(pairs.rows_call(), nullptr) == cudaSuccess);
  if (has_octets(pairs.shape)) {
    std::fill(pairs.rows.begin(), pairs.rows.end(), NAN);
    auto const& shape = pairs.shape;
    CHECK(octet_rows({shape, pairs.prefix.data(), pairs.suffix.data(), pairs.rows.data()},
                     nullptr) == cudaSuccess);
  }
  auto const staged = stage_suffixes_of(pairs);
  CHECK(launch_products<true>(pairs.added_call(), nullptr) == cudaSuccess);
  CHECK(prefix_gradients(pairs.gradients_args(), nullptr) == cudaSuccess);
  auto const summed = sum_suffixes(pairs.gradients_args());
  CHECK(summed == sizes.summed);

  auto const truth = truth_of(pairs);
  auto const error = exact ? 1e-6 : 2e-3;
  check_close(pairs.rows, truth.rows, error);
  if (!staged.empty()) check_close(staged, truth.rows, error);
  check_close(pairs.d_prefix, truth.d_prefix, 5 * error);
  check_close(pairs.added, truth.added, error);
  if (summed) check_close(pairs.d_suffix, truth.d_suffix, 5 * error);
}

std::vector<BFloat16> narrowed(std::vector<float> const& numbers) {
  std::vector<BFloat16> half(numbers.size());
  for (size_t i = 0; i < half.size(); ++i) from_float(numbers[i], &half[i]);
  return half;
}

std::vector<float> widened(std::vector<BFloat16> const& half) {
  std::vector<float> numbers(half.size());
  for (size_t i = 0; i < half.size(); ++i) numbers[i] = to_float(half[i]);
  return numbers;
}

// Prefixes, rows and their gradients are of bfloat16. `memory` is the shared memory of a block;
// little of it makes many parts of the suffixes.
void check_halves(Sizes const& sizes, int64_t memory) {
  std::mt19937 random(8);
  Pairs pairs(sizes, false, random);
  pairs.shape.exact = kHalfFactors;
  CHECK(may_be_half(pairs.shape));
  for (auto* numbers : {&pairs.prefix, &pairs.suffix, &pairs.d_rows}) {
    *numbers = widened(narrowed(*numbers));
  }
  auto const truth = truth_of(pairs);
  auto const prefix = narrowed(pairs.prefix), suffix = narrowed(pairs.suffix);
  auto const d_rows = narrowed(pairs.d_rows);
  auto const nothing = narrowed({NAN})[0];
  std::vector<BFloat16> rows(pairs.rows.size(), nothing), d_prefix(prefix.size(), nothing);
  CHECK(staged_rows({pairs.shape, prefix.data(), suffix.data(), rows.data()}, memory, nullptr) ==
        cudaSuccess);
  PairGradientsOf<BFloat16> const args{pairs.shape,   prefix.data(),   suffix.data(),
                                       d_rows.data(), d_prefix.data(), pairs.d_suffix.data()};
  CHECK(half_prefix_gradients(args, nullptr) == cudaSuccess);
  CHECK(sum_suffixes(args));
  check_close(widened(rows), truth.rows, 4e-3);  // results are rounded once
  check_close(widened(d_prefix), truth.d_prefix, 4e-3);
  check_close(pairs.d_suffix, truth.d_suffix, 1e-6);
}

// Where rows of prefixes begin may be any numbers: nothing is read or written beyond the arrays.
void check_any_starts(Sizes const& sizes) {
  std::mt19937 random(9);
  Pairs pairs(sizes, false, random);
  auto const rows = pairs.starts.back();
  int32_t const some[] = {INT32_MIN, INT32_MIN + 1, -1, 0, rows - 1, rows, rows + 1, INT32_MAX};
  for (auto& start : pairs.starts) start = some[random() % std::size(some)];
  pairs.starts[0] = INT32_MAX;  // and the rows of this prefix end far below zero
  pairs.starts[1] = INT32_MIN;
  auto const& shape = pairs.shape;
  CHECK(octet_rows({shape, pairs.prefix.data(), pairs.suffix.data(), pairs.rows.data()}, nullptr) ==
        cudaSuccess);
  CHECK(!stage_suffixes_of(pairs).empty());
  CHECK(prefix_gradients(pairs.gradients_args(), nullptr) == cudaSuccess);
  CHECK(sum_suffixes(pairs.gradients_args()));
  for (auto const x : pairs.d_prefix) CHECK(std::isfinite(x));
  for (auto const x : pairs.d_suffix) CHECK(std::isfinite(x));
}

}  // namespace

int main() {
  Sizes const all[] = {
      {20, 30, 16, 32, 4, 0.4, 1, 1, true},
      {20, 30, 16, 32, 4, 0.4, 4, 5, true},
      {6, 40, 16, 64, 8, 0.3, 2, 6, true},
      {12, 40, 8, 16, 2, 0.8},
      {9, 20, 16, 8, 1, 0.5},
      {4, 11, 17, 33, 3, 0.7},
      {3, 5, 40, 70, 5, 0.6, 2, 1},
      {5, 6, 6, 20, 13, 0.5},
      {4, 50, 3, 36, 6, 0.5},
      {3, 150, 16, 16, 4, 0.9, 1, 1, true},
      {40, 60, 16, 32, 4, 0.05, 1, 1, true},
      {3, 90, 4, 64, 24, 0.5},
      {3, 9, 4, 40, 100, 0.5},
      {30, 4, 16, 32, 4, 0.0, 1, 1, true},
      {20, 70, 16, 32, 4, 0.6, 4, 5, true},
      {9, 40, 16, 64, 8, 0.9, 1, 1, true},
      {70, 300, 16, 32, 4, 0.1, 2, 7, true},
      {2, 300, 16, 32, 4, 1.0, 1, 1, true},
      {10, 150, 16, 64, 8, 0.7, 1, 1, true},
      {6, 30, 16, 16, 8, 0.5, 1, 1, true},
      {5, 60, 16, 64, 4, 0.5, 1, 1, true},
      {11, 250, 16, 64, 8, 0.15, 4, 11, true},
      {40, 170, 16, 64, 4, 0.02, 1, 1, true},
      {3, 170, 16, 32, 8, 0.9, 2, 3, true},
      {5, 400, 16, 32, 4, 0.4, 4, 5, true},
  };
  for (auto const& sizes : all) {
    for (auto const exact : {true, false}) check(sizes, exact);
  }
  Sizes const halves[] = {
      {20, 30, 16, 32, 4, 0.4, 4, 5},    {6, 40, 16, 64, 8, 0.3, 2, 6},
      {3, 170, 16, 32, 8, 0.9, 2, 3},    {5, 400, 16, 32, 4, 0.4, 4, 5},
      {40, 170, 16, 64, 4, 0.02},        {30, 4, 16, 32, 4, 0.0},
      {11, 250, 16, 64, 8, 0.15, 4, 11},
  };
  for (auto const& sizes : halves) {
    check_halves(sizes, 164 * 1024);
    if (sizes.suffixes >= 170) check_halves(sizes, 40 * 1024);
  }
  check_any_starts({20, 30, 16, 32, 4, 0.4, 1, 1, true});
  check_any_starts({11, 250, 16, 64, 8, 0.15, 4, 11, true});  // several parts
  std::puts("tensor_train_test: ok");
  return 0;
}
