// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/joined_lookups_test.cc: gradients of several lookups in one call, where a later lookup
// has given slots to other ids: one slot has two ids. Each gradient goes to the row of its own id,
// or is counted as lost, whatever the order of the lookups, with keys of 32 bits and of 64.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "cuda/gradients/checked_slots.cuh"
#include "tests/core/test_table.h"
#include "tests/cuda/large_update.h"

namespace {

using namespace dynemb;
using namespace dynemb::cuda;
using dynemb::testing::BeginUpdate;
using dynemb::testing::LargeUpdate;
using dynemb::testing::TestTable;

constexpr int64_t kBuckets = 2;
constexpr int kSlots = kBuckets * kBucketCapacity;
constexpr int32_t kDim = 4;
constexpr Key kOld = 1000, kNew = 5000;  // of slot 0, at each lookup

// Holds the ids of one lookup, and their slots at that time.
struct Lookup {
  std::vector<Key> ids;
  std::vector<int32_t> slots;
  std::vector<float> gradients;

  Lookup(int items, bool is_first, std::mt19937& random, std::vector<bool> const& taken) {
    for (int i = 0; i < items; ++i) {
      auto slot = static_cast<int32_t>(random() % kSlots);
      if (random() % 4 == 0) slot %= 3;  // popular
      auto const old = is_first || !taken[size_t(slot)];
      ids.push_back((old ? kOld : kNew) + static_cast<Key>(slot));
      slots.push_back(random() % 16 == 0 ? kPaddingSlot : slot);
      for (int c = 0; c < kDim; ++c) gradients.push_back(static_cast<float>(random() % 64));
    }
  }

  FeatureRef feature(int32_t table) {
    FeatureRef ref{};
    ref.ids = ids.data();
    ref.id_type = IdType::k64;
    ref.table = table;
    ref.num_ids = ref.num_bags = static_cast<int64_t>(ids.size());
    ref.bag_size = 1;
    ref.row_type = ValueType::kFloat32;
    ref.rows = gradients.data();
    ref.slots = slots.data();
    return ref;
  }
};

// A table after two lookups, of which the second has taken some slots of the first.
struct World {
  TestTable table{kBuckets, kDim, ScorePolicy::kStep, true};
  std::vector<bool> taken;
  std::vector<Lookup> lookups;
  std::vector<float> expected = std::vector<float>(kSlots * kDim);
  uint64_t lost = 0;

  World(int items, std::mt19937& random) {
    for (int s = 0; s < kSlots; ++s) {
      taken.push_back(random() % 2 == 0);
      *key_at(table.ref, s) = (taken.back() ? kNew : kOld) + static_cast<Key>(s);
    }
    note_left(table.ref);
    for (auto const is_first : {true, false}) lookups.emplace_back(items, is_first, random, taken);
    for (auto const& lookup : lookups) expect(lookup);
  }

  void expect(Lookup const& lookup) {
    for (size_t i = 0; i < lookup.ids.size(); ++i) {
      auto const slot = lookup.slots[i];
      if (slot < 0) continue;
      if (*key_at(table.ref, slot) != lookup.ids[i]) {
        ++lost;
        continue;
      }
      for (int c = 0; c < kDim; ++c) {
        expected[size_t(slot * kDim + c)] -= lookup.gradients[i * kDim + size_t(c)];
      }
    }
  }

  void check() const {
    auto const* const values = static_cast<float const*>(table.ref.values);
    CHECK(std::equal(expected.begin(), expected.end(), values));  // small integers: exact
    CHECK(table.ref.counters[kLostUpdates] == lost);
    CHECK(lost > 0 || lookups[0].ids.size() < 10);
  }
};

template <class SortKey>
void update(UpdateArgs const& args) {
  LargeUpdate<SortKey> update(args);
  std::unique_ptr<UpdateArgs> checked;
  // As in cuda/gradients/order.cuh.
  auto* const slots = reinterpret_cast<int32_t*>(update.scratch.order.keys[1]);
  using Size = CallSize<32, 32>;
  CHECK(check_slots<Size>(args, BeginUpdate{}, slots, nullptr, &checked) == cudaSuccess);
  update.sort(*checked);
  update.template sum<FewItems>();
}

// Lookups of several tables; `late_first`: the residual of the second one comes first.
template <class SortKey>
void run(int tables, int items, bool late_first, std::mt19937& random) {
  testing::shuffle_blocks = [&](auto& order) { std::shuffle(order.begin(), order.end(), random); };
  std::vector<std::unique_ptr<World>> worlds;
  auto const args = std::make_unique<UpdateArgs>();
  args->num_tables = tables;
  args->joins_lookups = 1;
  for (int t = 0; t < tables; ++t) {
    worlds.push_back(std::make_unique<World>(items, random));
    args->tables[t] = worlds.back()->table.ref;
  }
  for (int n = 0; n < 2; ++n) {  // the features of a table are not neighbours
    for (int t = 0; t < tables; ++t) {
      auto& lookups = worlds[size_t(t)]->lookups;
      args->features[args->num_features++] =
          lookups[late_first ? size_t(1 - n) : size_t(n)].feature(t);
    }
  }
  update<SortKey>(*args);
  for (auto const& world : worlds) world->check();
}

}  // namespace

int main() {
  std::mt19937 random(1);
  for (int const tables : {1, 3}) {
    for (int const items : {1, 60, 700, 5000}) {
      for (auto const late_first : {false, true}) {
        run<uint32_t>(tables, items, late_first, random);
        run<uint64_t>(tables, items, late_first, random);
      }
    }
  }
}
