// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/core/column_loops_test.cc: sums over the columns of a row have the order, and so the bits,
// of the sums of squares of the tuned loops, whatever the instruction set; and an optimizer adds to
// as many sums as it says, since a GPU exchanges no others.
#include "cpu/gradients/column_loops.h"

#include <algorithm>
#include <vector>

#include "core/optimizers/list.h"
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

template <class Functor>
void adds_to_as_many_sums_as_it_says() {
  float hyper[kMaxHyper], wide[2] = {0.5f, 0.25f};
  std::fill_n(hyper, kMaxHyper, 0.5f);
  auto const functor = Functor::prepare(hyper, 3);
  RowFactors const factors{{0.5f, 0.5f, 0.5f, 0.5f}};
  RowSums2 sums{};
  functor.template add<0>(factors, 2.0f, 3.0f, wide, sums);
  functor.template add<1>(factors, 2.0f, 3.0f, wide, sums);
  CHECK((sums.a != 0.0f) == (functor.stages() > 0));
  CHECK((sums.b != 0.0f) == (Functor::kSums == 2));
}

}  // namespace

int main() {
#define ADDS(Name) adds_to_as_many_sums_as_it_says<Name>();
  DYNEMB_FOR_EACH_OPTIMIZER(ADDS)
#undef ADDS
  for (int32_t dim = 1; dim <= 200; ++dim) sums_have_the_order_of_tuned_ones(dim);
  sums_have_the_order_of_tuned_ones(1024);
  std::printf("column loops: ok, instruction set %d in use\n", static_cast<int>(cpu::isa_in_use()));
  return 0;
}
