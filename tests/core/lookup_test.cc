// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/core/lookup_test.cc: whole lookups and updates by several threads, counted by hand.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "core/args.h"
#include "core/slot.h"
#include "cpu/table_ops.h"
#include "tests/core/test_table.h"

namespace {

using namespace dynemb;
using dynemb::testing::random_at;
using dynemb::testing::TestTable;
using dynemb::testing::ThreadsPool;

constexpr int32_t kDim = 4;

struct Batch {
  std::vector<Key> ids;
  std::vector<int32_t> slots;
  std::vector<float> rows;

  explicit Batch(std::vector<Key> given)
      : ids(std::move(given)), slots(ids.size()), rows(ids.size() * kDim) {}

  FeatureRef feature() {
    FeatureRef f{};
    f.ids = ids.data();
    f.num_ids = f.num_bags = static_cast<int64_t>(ids.size());
    f.bag_size = 1;
    f.rows = rows.data();
    f.slots = slots.data();
    return f;
  }
};

void lookup(TestTable& table, Batch& batch, int threads) {
  auto args = std::make_unique<LookupArgs>();
  uint64_t const no_score = 0;
  args->num_tables = args->num_features = 1;
  args->given = &no_score;
  args->tables[0] = table.ref;
  args->features[0] = batch.feature();
  ThreadsPool threads_pool(threads);
  cpu::lookup(*args, threads_pool.pool);
}

// SGD with rate 1: afterwards each row is its key mod 100000 minus the number of its occurrences.
void update(TestTable& table, Batch& batch, int threads) {
  auto args = std::make_unique<UpdateArgs>();
  float const hyper[kNumHyperParameters] = {1.0f, 0.0f, 0.0f, 0.0f, 0.0f};
  std::fill(batch.rows.begin(), batch.rows.end(), 1.0f);
  args->num_tables = args->num_features = 1;
  args->hyper = hyper;
  args->optimizers[0] = OptimizerKind::kSgd;
  args->tables[0] = table.ref;
  args->features[0] = batch.feature();
  ThreadsPool threads_pool(threads);
  cpu::update(*args, threads_pool.pool);
}

void a_million_uses_that_decay() {
  TestTable table(4, kDim, ScorePolicy::kDecayingLfu, true);
  Batch batch(std::vector<Key>(1000000, Key{77}));
  lookup(table, batch, 8);
  auto const all = uint64_t{1000000} * weight_of(1, table.ref.halflife);
  CHECK(*score_at(table.ref, batch.slots[0]) == pack_score(all, 1));
}

void one_unseen_key_a_million_times() {
  TestTable table(4, kDim, ScorePolicy::kLfu, true);
  Batch batch(std::vector<Key>(1000000, Key{77}));
  lookup(table, batch, 8);
  CHECK(table.ref.counters[kInserted] == 1 && table.ref.counters[kRows] == 1);
  CHECK(std::set<int32_t>(batch.slots.begin(), batch.slots.end()).size() == 1);
  CHECK(*score_at(table.ref, batch.slots[0]) == pack_score(1000000, 1));
  for (auto value : batch.rows) CHECK(value == 77.0f);
  update(table, batch, 8);
  CHECK(static_cast<float*>(table.ref.values)[batch.slots[0] * kDim] == 77.0f - 1000000.0f);
}

void many_duplicates_then_updates() {
  TestTable table(64, kDim, ScorePolicy::kStep, true);
  std::map<Key, int> occurrences;
  std::vector<Key> ids;
  for (uint64_t i = 0; i < 40000; ++i) {
    ids.push_back(random_at(random_at(i) % 3000));
    ++occurrences[ids.back()];
  }
  Batch batch(ids);
  lookup(table, batch, 8);
  CHECK(table.ref.counters[kInserted] == occurrences.size());
  CHECK(table.ref.counters[kRefused] == 0);
  std::map<Key, int32_t> slot_of;
  for (size_t i = 0; i < ids.size(); ++i) {
    auto const known = slot_of.emplace(ids[i], batch.slots[i]).first;
    CHECK(known->second == batch.slots[i] && batch.slots[i] >= 0);
  }
  update(table, batch, 8);
  for (auto const& [key, slot] : slot_of) {
    auto const wanted = static_cast<float>(key % 100000) - static_cast<float>(occurrences[key]);
    CHECK(static_cast<float*>(table.ref.values)[int64_t{slot} * kDim + 3] == wanted);
  }
}

// More keys than slots: the table is full afterwards, each winner has a row, the rest has none.
void a_batch_larger_than_the_table() {
  TestTable table(2, kDim, ScorePolicy::kStep, true);
  std::vector<Key> ids;
  for (uint64_t i = 0; i < 5000; ++i) ids.push_back(random_at(i));
  Batch batch(ids);
  lookup(table, batch, 8);
  CHECK(table.ref.counters[kRows] == 256 && table.ref.counters[kInserted] == 256);
  CHECK(table.ref.counters[kRefused] == 5000 - 256);
  CHECK(std::count(batch.slots.begin(), batch.slots.end(), kRefusedSlot) == 5000 - 256);
  update(table, batch, 8);
  CHECK(table.ref.counters[kLostUpdates] == 0);
  Batch next(std::vector<Key>(ids.rbegin(), ids.rend()));  // everything may leave now
  lookup(table, next, 8);
  CHECK(table.ref.counters[kRows] == 256);
  update(table, batch, 8);  // rows of the first batch that have been replaced
  auto const lost = table.ref.counters[kLostUpdates];
  CHECK(lost == table.ref.counters[kEvicted]);
}

}  // namespace

int main() {
  one_unseen_key_a_million_times();
  a_million_uses_that_decay();
  many_duplicates_then_updates();
  a_batch_larger_than_the_table();
  std::puts("lookup: ok");
  return 0;
}
