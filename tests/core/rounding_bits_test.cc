// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/core/rounding_bits_test.cc: the bits that every instruction set draws for some rows
// together, against those of one quad of columns (core/stochastic.h).
#include "cpu/gradients/rounding_bits.h"

#include <vector>

#include "tests/core/test_table.h"

namespace {

using namespace dynemb;
using cpu::Isa;
using dynemb::testing::random_at;

template <Isa isa>
void draws_what_quads_draw(int32_t dim, int count, uint64_t first_column, int array) {
  std::vector<Entry> index((kBucketBytes + sizeof(Entry) - 1) / sizeof(Entry));
  std::vector<uint64_t> counters(kNumCounters);
  counters[kSeed] = random_at(1);
  counters[kStep] = (uint64_t{5} << 32) + 7;
  counters[kFirstColumn] = first_column;
  TableRef table{};
  table.index = reinterpret_cast<uint8_t*>(index.data());
  table.counters = counters.data();
  table.dim = dim;
  cpu::RowUpdates rows;
  rows.count = count;
  for (int r = 0; r < count; ++r) {
    rows.slots[r] = 3 * r + 1;
    *key_at(table, static_cast<int32_t>(rows.slots[r])) = random_at(100 + static_cast<uint64_t>(r));
  }
  auto& bits = cpu::RoundingBits::of_this_thread(array);
  bits.draw<isa>(table, rows, array);
  auto seed = rounding_seed(counters.data());
  seed.array = static_cast<uint32_t>(array);
  for (int r = 0; r < count; ++r) {
    auto const key = *key_at(table, static_cast<int32_t>(rows.slots[r]));
    for (int32_t column = 0; column < dim; ++column) {
      uint32_t expected[4];
      rounding_bits(seed, key, static_cast<uint32_t>(column / 4), expected);
      CHECK(bits.of_row(r)[column] == expected[column % 4]);
    }
  }
}

template <Isa isa>
void draws_what_quads_draw() {
  for (int32_t const dim : {1, 3, 4, 8, 20, 64, 128, 130, 1000}) {
    for (int const count : {1, 3, 8}) {
      for (uint64_t const first_column : {0, 12, 256}) {
        draws_what_quads_draw<isa>(dim, count, first_column, count % 3);
      }
    }
  }
}

}  // namespace

int main() {
  draws_what_quads_draw<Isa::kPortable>();
#ifdef DYNEMB_X86
  auto const isa = cpu::isa_in_use();
  if (isa >= Isa::kAvx2) draws_what_quads_draw<Isa::kAvx2>();
  if (isa >= Isa::kAvx512) draws_what_quads_draw<Isa::kAvx512>();
#endif
  std::printf("rounding bits: ok, instruction set %d in use\n",
              static_cast<int>(cpu::isa_in_use()));
  return 0;
}
