// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/core/hash_test.cc: with any seed the hash is a bijection that spreads keys evenly, and it
// never changes, since checkpoints hold what lies in its buckets.
#include "core/hash.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "tests/core/route_truth.h"
#include "tests/core/test_table.h"

namespace {

using namespace dynemb;
using dynemb::testing::id_of_hash;
using dynemb::testing::random_at;

// The values were computed by tests/oracle, in Python's integers.
void check_known_values() {
  struct Known {
    Key key;
    uint64_t seed, hash;
  };
  Known const all[] = {
      {0x1ull, 0x0ull, 0xb456bcfc34c2cb2cull},
      {0xffffffffffffffffull, 0x0ull, 0x64b5720b4b825f21ull},
      {0x1ull, 0x1ull, 0xf3cd97446bf8762cull},
      {0xcbf29ce484222325ull, 0xffffffffffffffffull, 0xbdfb03a5f34dc39cull},
      {0xfffffffffffffffbull, 0x243f6a8885a308d3ull, 0x34dcd5de0b6e2f39ull},
  };
  for (auto const& [key, seed, hash] : all) CHECK(hash_key(key, factors_of_seed(seed)) == hash);
}

void check_bijection(HashFactors const& factors, uint64_t stream) {
  CHECK(factors.first % 2 == 1 && factors.second % 2 == 1);
  for (uint64_t i = 0; i < 1000; ++i) {
    auto const number = random_at(stream << 32 | i);
    CHECK(hash_key(id_of_hash(number, factors), factors) == number);
    CHECK(id_of_hash(hash_key(number, factors), factors) == number);
  }
}

// 128,000 ids in 1,000 buckets: 128 each, with a deviation of 11 if they fall at random.
void check_even(HashFactors const& factors, uint64_t step) {
  std::vector<int> rows(1000);
  for (uint64_t i = 0; i < 128'000; ++i) ++rows[bucket_of(hash_key(i * step, factors), 1000)];
  CHECK(*std::max_element(rows.begin(), rows.end()) < 128 + 6 * 12);
  CHECK(*std::min_element(rows.begin(), rows.end()) > 128 - 6 * 12);
}

}  // namespace

int main() {
  check_known_values();
  check_bijection(plain_factors(), 0);
  for (uint64_t s = 1; s <= 200; ++s) {
    auto const factors = factors_of_seed(s % 2 == 0 ? s / 2 : random_at(s));
    check_bijection(factors, s);
    if (s > 20) continue;
    for (uint64_t const step : {uint64_t{1}, uint64_t{1} << 20, uint64_t{1} << 46}) {
      check_even(factors, step);
    }
  }
  std::puts("hash: ok");
  return 0;
}
