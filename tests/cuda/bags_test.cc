// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/bags_test.cc: gradients of bags that differ in length, in a batch that is sorted by
// several kernels. The row of an id gets the gradient of each bag that the id is in. Other features
// have bags of equal length; some bags are empty, and ids behind the last bag are padding.
#include "cuda/gradients/bags.cuh"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "tests/core/test_table.h"
#include "tests/cuda/large_update.h"

namespace {

using namespace dynemb;
using namespace dynemb::cuda;
using dynemb::testing::LargeUpdate;
using dynemb::testing::TestTable;

constexpr int64_t kBuckets = 2;
constexpr int kSlots = kBuckets * kBucketCapacity;
constexpr int32_t kDim = 4;
constexpr int kBehind = 7;  // positions behind the last bag

// One table with one feature, and what its rows are to be.
struct World {
  TestTable table{kBuckets, kDim, ScorePolicy::kStep, false};
  std::vector<int32_t> offsets, slots, bags;  // bags: of each position, -1 behind the last one
  std::vector<Key> ids;
  std::vector<float> gradients;
  std::vector<float> expected = std::vector<float>(kSlots * kDim);
  int64_t bag_size;

  // A bag in `filled` has ids, where bags differ.
  World(int num_bags, int64_t bag_size, uint32_t filled, std::mt19937& random)
      : bag_size(bag_size) {
    offsets.push_back(0);
    for (int b = 0; b < num_bags; ++b) {
      auto const size = bag_size > 0             ? bag_size
                        : random() % filled != 0 ? 0
                                                 : int64_t(random() % 9);
      for (int64_t i = 0; i < size; ++i) add(b, static_cast<int32_t>(random() % kSlots));
      offsets.push_back(static_cast<int32_t>(slots.size()));
      for (int c = 0; c < kDim; ++c) gradients.push_back(static_cast<float>(random() % 64));
    }
    for (int i = 0; bag_size == 0 && i < kBehind; ++i) add(-1, kPaddingSlot);
    for (size_t i = 0; i < slots.size(); ++i) {
      for (int c = 0; bags[i] >= 0 && c < kDim; ++c) {
        expected[size_t(slots[i] * kDim + c)] -= gradients[size_t(bags[i] * kDim + c)];
      }
    }
  }

  void add(int32_t bag, int32_t slot) {
    bags.push_back(bag);
    slots.push_back(slot);
    ids.push_back(slot < 0 ? kEmptyKey : static_cast<Key>(slot));
    if (slot >= 0) *key_at(table.ref, slot) = ids.back();
  }

  FeatureRef feature(int32_t number) {
    FeatureRef ref{};
    ref.ids = ids.data();
    ref.id_type = IdType::k64;
    ref.table = number;
    ref.num_ids = static_cast<int64_t>(ids.size());
    ref.num_bags = static_cast<int64_t>(offsets.size()) - 1;
    ref.bag_size = bag_size;
    ref.offsets = bag_size == 0 ? offsets.data() : nullptr;
    ref.pooling = Pooling::kSum;
    ref.row_type = ValueType::kFloat32;
    ref.rows = gradients.data();
    ref.slots = slots.data();
    return ref;
  }
};

using Worlds = std::vector<std::unique_ptr<World>>;

template <class SortKey>
void check_bags(Worlds const& worlds, SortedGradients<SortKey> const& sorted) {
  auto const any = std::any_of(worlds.begin(), worlds.end(),
                               [](auto const& world) { return world->bag_size == 0; });
  CHECK((sorted.bags != nullptr) == any);
  size_t item = 0;
  for (auto const& world : worlds) {
    for (auto const bag : world->bags) {
      if (world->bag_size == 0 && bag >= 0) CHECK(sorted.bags[item] == uint32_t(bag));
      ++item;
    }
  }
}

template <class SortKey>
void update(UpdateArgs const& args, Worlds const& worlds) {
  LargeUpdate<SortKey> update(args);
  update.sort(args);
  auto const& [view, runs, order] = update.scratch;
  CHECK(find_bags(args, view, order, &update.sorted, nullptr) == cudaSuccess);
  check_bags(worlds, update.sorted);
  update.template sum<NarrowRows>();
}

// bag_sizes: of each table; 0: bags differ.
template <class SortKey>
void run(std::vector<int64_t> const& bag_sizes, int num_bags, uint32_t filled,
         std::mt19937& random) {
  testing::shuffle_blocks = [&](auto& order) { std::shuffle(order.begin(), order.end(), random); };
  Worlds worlds;
  auto const args = std::make_unique<UpdateArgs>();
  for (auto const bag_size : bag_sizes) {
    worlds.push_back(std::make_unique<World>(num_bags, bag_size, filled, random));
    auto const t = args->num_tables++;
    args->tables[t] = worlds.back()->table.ref;
    args->features[args->num_features++] = worlds.back()->feature(t);
  }
  update<SortKey>(*args, worlds);
  for (auto const& world : worlds) {
    auto const* const values = static_cast<float const*>(world->table.ref.values);
    CHECK(std::equal(world->expected.begin(), world->expected.end(), values));  // exact
  }
}

}  // namespace

int main() {
  std::mt19937 random(1);
  for (auto const& bag_sizes : std::vector<std::vector<int64_t>>{{0}, {3, 0}, {0, 1, 0}, {2}}) {
    for (int const num_bags : {1, 40, 1500}) {
      for (uint32_t const filled : {1, 2, 300}) {
        run<uint32_t>(bag_sizes, num_bags, filled, random);
        run<uint64_t>(bag_sizes, num_bags, filled, random);
      }
    }
  }
}
