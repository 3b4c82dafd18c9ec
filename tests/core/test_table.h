// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/core/test_table.h: a table in vectors, and a check that stays in a release
// build.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "core/table_ref.h"
#include "cpu/loops/thread_pool.h"

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                      \
    }                                                                                    \
  } while (false)

namespace dynemb::testing {

// Owns the arrays of a table of float32 rows without optimizer states. Tables of a test have this
// hash.
inline HashFactors test_hash = plain_factors();

// Runs a test with the public hash, and with that of a seed.
template <class Test>
void with_each_hash(Test const& test) {
  for (uint64_t const seed : {uint64_t{0}, uint64_t{0x243f6a8885a308d3}}) {
    test_hash = factors_of_seed(seed);
    test();
  }
}

class TestTable {
 public:
  TestTable(int64_t num_buckets, int32_t dim, ScorePolicy policy, bool evicts)
      : index_(size_t(num_buckets * bucket_bytes(policy) / 8)),
        values_(size_t(num_buckets * kBucketCapacity * dim)),
        counters_(kNumCounters) {
    ref.index = reinterpret_cast<uint8_t*>(index_.data());
    ref.values = values_.data();
    ref.counters = counters_.data();
    ref.counter_rows = 1;
    ref.num_buckets = static_cast<uint64_t>(num_buckets);
    ref.local_buckets = num_buckets;
    ref.dim = dim;
    ref.hash = test_hash;
    ref.value_type = ValueType::kFloat32;
    ref.policy = policy;
    ref.evicts = evicts ? kEvicts : kRefuses;
    ref.halflife = 3;  // of counts that decay
    ref.initializer = {InitializerKind::kDebug, {}};
    ref.eval_initializer = {InitializerKind::kConstant, {}};
    for (int64_t b = 0; b < num_buckets; ++b) {
      for (int i = 0; i < kBucketCapacity; ++i) bucket_at(ref, b).entries[i].key = kEmptyKey;
    }
  }

  TableRef ref{};

 private:
  std::vector<uint64_t> index_;
  std::vector<float> values_;
  std::vector<uint64_t> counters_;
};

// A pool whose helpers are new threads: nothing for a sanitizer to be suspicious of.
class ThreadsPool {
 public:
  explicit ThreadsPool(int num_threads) {
    pool.num_threads = num_threads;
    pool.schedule = [this](std::function<void()> task) { threads_.emplace_back(std::move(task)); };
  }
  ~ThreadsPool() { join(); }
  void join() {
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }
  cpu::ThreadPool pool;

 private:
  std::vector<std::thread> threads_;
};

// splitmix64 (Steele, Lea, Flood 2014): numbers for tests.
inline uint64_t random_at(uint64_t i) {
  i = (i + 1) * 0x9E3779B97F4A7C15ull;
  i = (i ^ (i >> 30)) * 0xBF58476D1CE4E5B9ull;
  i = (i ^ (i >> 27)) * 0x94D049BB133111EBull;
  return i ^ (i >> 31);
}

}  // namespace dynemb::testing
