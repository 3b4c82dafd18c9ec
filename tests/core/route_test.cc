// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/core/route_test.cc: the CPU's loop beside a sort by all bits, with ids whose hashes meet.
#include "core/route.h"

#include "cpu/table_ops.h"
#include "tests/core/route_truth.h"

namespace {

using namespace dynemb;
using namespace dynemb::testing;

void check(RouteBatch const& batch) {
  for (int const threads : {1, 4}) {
    RouteResult result(batch);
    ThreadsPool pool(threads);
    cpu::route(args_of(batch, result), pool.pool);
    pool.join();
    CHECK(result == true_route(batch));
  }
}

void check_keys() {
  CHECK(sort_key(kEmptyKey, test_hash) == kPaddingSortKey);
  for (uint64_t const upper : {0u, 5u, 0xfffffffdu, 0xfffffffeu, 0xffffffffu}) {
    for (uint64_t const lower : {0u, 1u, 0x80000000u, 0xffffffffu}) {
      auto const hash = upper << 32 | lower;
      auto const id = id_of_hash(hash);
      CHECK(hash_key(id, test_hash) == hash);
      CHECK(sort_key(id, test_hash) == std::min<uint64_t>(upper, 0xfffffffe));
      for (uint32_t const buckets : {1u, 2u, 3u, 7u, 1024u, 1000003u, 2147483647u, 4294967295u}) {
        for (uint32_t const of_each : {1u, 2u, 5u, 1000u}) {
          auto const owners = owners_of(buckets, of_each);
          auto const owner = owner_of_sort_key(sort_key(id, test_hash), owners);
          CHECK(owner < 0 || owner == owner_of(hash, owners));
          auto const bucket = bucket_of(hash, buckets);
          CHECK(buckets > 0x7fffffff ||
                owner_of(hash, owners) == static_cast<int32_t>(bucket / of_each));
        }
      }
    }
  }
}

void check_all() {
  check_keys();
  std::mt19937_64 random(0);
  check({});
  for (size_t parts = 1; parts < 40; ++parts) check(random_batch(random, parts, 300));
  for (int i = 0; i < 5; ++i) check(random_batch(random, 8, 20'000));
  for (size_t const distinct : {2, 3, 5000}) {
    RouteBatch batch;
    batch.add(std::vector<Key>(100, kEmptyKey), 4);
    batch.add(alternating_ids(30'000, 0x12345678, distinct), 8);
    batch.add(alternating_ids(700, 0xffffffff, distinct), 3, 2);
    check(batch);
  }
}

}  // namespace

int main() {
  with_each_hash(check_all);
  std::puts("route: ok");
  return 0;
}
