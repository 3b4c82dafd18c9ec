// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/core/column_loops_test.cc: sums over the columns of a row have the order, and so the bits,
// of the sums of squares of the tuned loops, whatever the instruction set.
#include "cpu/gradients/column_loops.h"

#include <vector>

#include "cpu/gradients/update_row.h"
#include "cpu/loops/isa.h"
#include "tests/core/test_table.h"

namespace {

using namespace dynemb;
using dynemb::testing::random_at;

void sums_have_the_order_of_tuned_ones(int32_t dim) {
  std::vector<float> w, g;
  for (uint64_t i = 0; i < static_cast<uint64_t>(dim); ++i) {
    w.push_back(static_cast<float>(random_at(2 * i) % 1000) / 37.0f);
    g.push_back(static_cast<float>(random_at(2 * i + 1) % 1000) / -53.0f);
  }
  cpu::RowColumns const row{dim, w.data(), g.data(), {w.data(), w.data()}};
  RowSums2 sums{};
  cpu::with_isa([&](auto) { sums = cpu::sum_columns<0>(Lars{}, RowFactors{}, row); });
  CHECK(sums.a == cpu::sum_of_squares(w.data(), dim));
  CHECK(sums.b == cpu::sum_of_squares(g.data(), dim));
}

}  // namespace

int main() {
  for (int32_t dim = 1; dim <= 200; ++dim) sums_have_the_order_of_tuned_ones(dim);
  sums_have_the_order_of_tuned_ones(1024);
  std::printf("column loops: ok, instruction set %d in use\n", static_cast<int>(cpu::isa_in_use()));
  return 0;
}
