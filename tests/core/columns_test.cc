// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/core/columns_test.cc: sums and copies of rows of every width, against one column after the
// other. Arrays end where the row ends, so that a sanitizer sees a column too many.
#include "cpu/loops/columns.h"

#include <cstring>
#include <vector>

#include "cpu/loops/packed_rows.h"
#include "cpu/loops/row_ops.h"
#include "cpu/loops/row_sums.h"
#include "tests/core/test_table.h"

namespace {

using namespace dynemb;
using dynemb::testing::random_at;

constexpr int kRows = 5;

float number(uint64_t i) { return static_cast<float>(random_at(i) % 20011) / 37.0f - 270.0f; }

template <class T>
std::vector<T> numbers(uint64_t seed, int32_t count) {
  std::vector<T> result(static_cast<size_t>(count));
  for (size_t i = 0; i < result.size(); ++i) from_float(number((seed << 20) + i), &result[i]);
  return result;
}

template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
struct Rows {
  explicit Rows(std::vector<std::vector<T>> given) : rows(std::move(given)) {
    for (auto const& row : rows) pointers.push_back(row.data());
  }
  std::vector<std::vector<T>> rows;
  std::vector<T const*> pointers;
};

template <class V, class O>
void sums_are_those_of_columns(int32_t dim, bool has_factors) {
  std::vector<std::vector<V>> given;
  for (uint64_t r = 0; r < kRows; ++r) given.push_back(numbers<V>(r, dim));
  Rows<V> const rows(given);
  auto const factors = numbers<float>(50, kRows);
  auto const* const used = has_factors ? factors.data() : nullptr;
  auto const before = numbers<float>(60, dim);
  auto added = before;
  std::vector<float> expected_added = before;
  std::vector<O> sum(static_cast<size_t>(dim)), copy = sum, scaled = sum;
  auto expected_sum = sum, expected_copy = sum, expected_scaled = sum;
  cpu::with_isa([&](auto isa) {
    constexpr auto kIsa = decltype(isa)::value;
    cpu::add_rows<kIsa>(rows.pointers.data(), used, kRows, dim, added.data());
    cpu::sum_rows<kIsa>(rows.pointers.data(), used, kRows, dim, 0.3f, sum.data());
    cpu::copy_row<kIsa>(rows.pointers[1], dim, copy.data(), false);
    cpu::scale_row<kIsa>(before.data(), 0.3f, dim, scaled.data());
  });
  for (size_t i = 0; i < static_cast<size_t>(dim); ++i) {
    float total = 0.0f;
    for (size_t r = 0; r < kRows; ++r) {
      auto const value = to_float(rows.rows[r][i]);
      auto const term = has_factors ? factors[r] * value : value;
      total += term;
      expected_added[i] += term;
    }
    from_float(0.3f * total, &expected_sum[i]);
    from_float(to_float(rows.rows[1][i]), &expected_copy[i]);
    from_float(0.3f * before[i], &expected_scaled[i]);
  }
  CHECK(same_bits(added, expected_added));
  CHECK(same_bits(sum, expected_sum));
  CHECK(same_bits(copy, expected_copy));
  CHECK(same_bits(scaled, expected_scaled));
}

template <RowCode code>
void packed_rows_are_their_columns(int32_t dim) {
  std::vector<std::vector<uint8_t>> given;
  for (uint64_t r = 0; r < kRows; ++r) {
    std::vector<uint8_t> row(static_cast<size_t>(packed_row_bytes(code, dim)));
    for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<uint8_t>(random_at(r << 20 | i));
    given.push_back(row);
  }
  Rows<uint8_t> const rows(given);
  auto const factors = numbers<float>(50, kRows);
  auto const before = numbers<float>(60, dim);
  auto added = before, expected_added = before;
  std::vector<float> out(static_cast<size_t>(dim)), expected_out = out;
  cpu::with_isa([&](auto isa) {
    constexpr auto kIsa = decltype(isa)::value;
    cpu::add_packed_rows<kIsa, code>(rows.pointers.data(), factors.data(), kRows, dim,
                                     added.data());
    cpu::unpack_row<kIsa, code>(rows.pointers[0], factors[0], dim, out.data());
  });
  auto const value_at = [&](size_t r, int32_t column) {
    uint32_t const byte =
        rows.rows[r][static_cast<size_t>(kScaleBytes + code_offset(code, column))];
    return code_value<code>(code == RowCode::kInt4 && column % 2 != 0 ? byte >> 4 : byte);
  };
  for (int32_t i = 0; i < dim; ++i) {
    auto& sum = expected_added[static_cast<size_t>(i)];
    for (size_t r = 0; r < kRows; ++r) sum += factors[r] * value_at(r, i);
    expected_out[static_cast<size_t>(i)] = factors[0] * value_at(0, i);
  }
  CHECK(same_bits(added, expected_added));
  CHECK(same_bits(out, expected_out));
}

template <class V>
void sums_are_those_of_columns(int32_t dim) {
  for (auto const has_factors : {false, true}) {
    sums_are_those_of_columns<V, float>(dim, has_factors);
    sums_are_those_of_columns<V, BFloat16>(dim, has_factors);
    sums_are_those_of_columns<V, Float16>(dim, has_factors);
  }
}

// NaNs, infinities, ties and denormals: every high half beside some low ones, in rows of all widths
// of a vector.
void halves_are_those_of_one_number() {
  constexpr uint32_t kLow[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  constexpr int32_t kDim = 31;  // 16, 8, 4, 2 and 1 columns, by instruction set
  std::vector<float> row(kDim);
  std::vector<BFloat16> halves(kDim), expected(kDim);
  std::vector<float> back(kDim), expected_back(kDim);
  for (uint32_t high = 0; high < 0x10000; high += kDim) {
    for (auto const low : kLow) {
      for (uint32_t i = 0; i < kDim; ++i) {
        row[i] = float_from_bits((high + i) << 16 | low);
        from_float(row[i], &expected[i]);
        expected_back[i] = to_float(expected[i]);
      }
      for (int32_t const dim : {1, 2, 3, 5, 9, 17, kDim}) {
        cpu::with_isa([&](auto isa) {
          constexpr auto kIsa = decltype(isa)::value;
          cpu::map_columns<kIsa>(row.data(), dim, halves.data(), [](auto*) {});
          cpu::map_columns<kIsa>(halves.data(), dim, back.data(), [](auto*) {});
        });
        auto const count = static_cast<size_t>(dim);
        CHECK(memcmp(halves.data(), expected.data(), count * sizeof(BFloat16)) == 0);
        CHECK(memcmp(back.data(), expected_back.data(), count * sizeof(float)) == 0);
      }
    }
  }
}

}  // namespace

int main() {
  halves_are_those_of_one_number();
  for (int32_t dim = 1; dim <= 200; ++dim) {
    sums_are_those_of_columns<float>(dim);
    sums_are_those_of_columns<BFloat16>(dim);
    sums_are_those_of_columns<Float16>(dim);
    packed_rows_are_their_columns<RowCode::kFloat8>(dim);
    packed_rows_are_their_columns<RowCode::kInt8>(dim);
    packed_rows_are_their_columns<RowCode::kInt4>(dim);
  }
  std::printf("columns: ok, instruction set %d in use\n", static_cast<int>(cpu::isa_in_use()));
  return 0;
}
