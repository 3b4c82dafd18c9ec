// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/ordered_sums_test.cc: sums of groups in an order that the caller gives, beside sums in
// double precision: groups of one position and of thousands, all widths of a tile, weights, bags of
// several lengths, rows of 16 bits. An order of any numbers reads and writes within its arrays.
#include "cuda/gradients/ordered_sums.cuh"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "tests/core/test_table.h"

namespace {

using namespace dynemb;
using namespace dynemb::cuda;

struct Scenario {
  int items, groups, dim;
  double popular;      // part of the items that are of three groups
  int bag_size;        // 0: bags of any length
  bool half, weights;  // sums of bfloat16; weights, and a scale of each bag
};

struct Batch {
  std::vector<int32_t> of_item, slots, positions, offsets;
  std::vector<float> gradients, weights, scale, partial, sums;
  std::vector<uint16_t> halves;
  ReduceArgs args{};

  Batch(Scenario const& s, std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<double> unit;
    auto const pick = [&](int count) { return static_cast<int>(random() % unsigned(count)); };
    for (int i = 0; i < s.items; ++i) {
      auto const where = unit(random);
      auto const group = where < s.popular ? pick(3) : pick(s.groups);
      of_item.push_back(where > 0.97 ? -1 : std::min(group, s.groups - 1));
    }
    positions.resize(size_t(s.items));
    std::iota(positions.begin(), positions.end(), 0);
    std::stable_sort(positions.begin(), positions.end(), [&](int a, int b) {
      return uint32_t(of_item[size_t(a)]) < uint32_t(of_item[size_t(b)]);
    });
    for (auto const position : positions) slots.push_back(of_item[size_t(position)]);
    auto const bags = s.bag_size > 0 ? s.items / s.bag_size : std::max(1, s.items / 7);
    for (int b = 0; b < bags; ++b) offsets.push_back(pick(s.items + 1));
    offsets.push_back(s.items);
    offsets[0] = 0;
    std::sort(offsets.begin(), offsets.end());
    auto const fill = [&](std::vector<float>& numbers, int count) {
      numbers.resize(size_t(count));
      for (auto& x : numbers) x = normal(random);
    };
    fill(gradients, bags * s.dim);
    fill(weights, s.items);
    fill(scale, bags);
    partial.assign(size_t(ordered_partial_rows(s.items) * s.dim), NAN);
    sums.assign(size_t(s.groups * s.dim), NAN);
    halves.assign(sums.size(), 0x7fc0);
    args.num_tables = args.num_features = 1;
    args.order = {slots.data(), positions.data()};
    auto& table = args.tables[0];
    table.dim = s.dim;
    table.num_groups = static_cast<uint32_t>(s.groups);
    auto const type = s.half ? ValueType::kBFloat16 : ValueType::kFloat32;
    auto* const rows = s.half ? static_cast<void*>(halves.data()) : sums.data();
    args.sums[0] = {nullptr, rows, {}, s.groups, type};
    auto& feature = args.features[0];
    feature.num_ids = s.items;
    feature.num_bags = bags;
    feature.bag_size = s.bag_size;
    feature.offsets = offsets.data();
    feature.weights = s.weights ? weights.data() : nullptr;
    feature.scale = s.weights ? scale.data() : nullptr;
    feature.row_type = ValueType::kFloat32;
    feature.rows = gradients.data();
  }

  void run() {
    CHECK(has_ordered_sums(args, ordered_partial_rows(args.features[0].num_ids)));
    CHECK(ordered_sums(args, partial.data(), nullptr) == cudaSuccess);
    if (args.sums[0].row_type == ValueType::kFloat32) return;
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = to_float(BFloat16{halves[i]});
  }

  // Returns the sums, and of each what the absolute values of its numbers add up to.
  std::vector<double> truth(std::vector<double>* sizes) const {
    auto const& feature = args.features[0];
    auto const dim = size_t(args.tables[0].dim);
    std::vector<double> found(sums.size(), NAN);
    sizes->assign(sums.size(), 0);
    for (size_t i = 0; i < of_item.size(); ++i) {
      if (of_item[i] < 0) continue;
      auto const bag = bag_of(feature, int64_t(i));
      auto const factor = gradient_factor(feature, bag, int64_t(i));
      for (size_t c = 0; c < dim; ++c) {
        auto const at = size_t(of_item[i]) * dim + c;
        auto const x = double{factor} * gradients[size_t(bag) * dim + c];
        found[at] = std::isnan(found[at]) ? x : found[at] + x;
        (*sizes)[at] += std::abs(x);
      }
    }
    return found;
  }
};

void check_sums(Scenario const& scenario, std::mt19937& random) {
  Batch batch(scenario, random);
  std::vector<double> sizes;
  auto const truth = batch.truth(&sizes);
  batch.run();
  auto const error = scenario.half ? 1.0 / 256 : 1e-6;
  for (size_t i = 0; i < truth.size(); ++i) {
    CHECK(std::isnan(truth[i]) == std::isnan(batch.sums[i]));
    if (std::isnan(truth[i])) continue;
    CHECK(std::abs(batch.sums[i] - truth[i]) <= error * std::abs(truth[i]) + 1e-6 * sizes[i]);
  }
  auto const first = batch.sums;
  batch.run();
  for (size_t i = 0; i < first.size(); ++i) {
    CHECK(std::memcmp(&first[i], &batch.sums[i], sizeof(float)) == 0);
  }
}

// Slots come in any order, as do slots and positions of no row.
void check_any_order(std::mt19937& random) {
  Batch batch({3000, 50, 64, 0.3, 3, false, true}, random);
  for (size_t i = 0; i < batch.slots.size(); ++i) {
    auto const any = static_cast<int32_t>(random());
    if (random() % 3 == 0) batch.slots[i] = random() % 2 == 0 ? any : any % 60;
    if (random() % 3 == 0) batch.positions[i] = random() % 2 == 0 ? any : any % 3001;
  }
  batch.run();
}

}  // namespace

int main() {
  std::mt19937 random(7);
  testing::shuffle_blocks = [&](auto& order) { std::shuffle(order.begin(), order.end(), random); };
  for (auto const dim : {20, 32, 36, 64, 68, 100, 128}) {
    for (auto const half : {false, true}) {
      check_sums({1, 1, dim, 0, 1, half, false}, random);
      check_sums({700, 2000, dim, 0, 1, half, false}, random);   // mostly alone
      check_sums({1500, 40, dim, 0.5, 20, half, true}, random);  // runs that cross blocks
      check_sums({2048, 300, dim, 0.2, 0, half, true}, random);  // bags of any length
      check_sums({1024, 1, dim, 0, 1, half, false}, random);     // one group
    }
  }
  check_sums({40'000, 3, 64, 1, 20, false, true}, random);  // a run of a hundred blocks,
  check_sums({80'000, 1, 32, 1, 1, false, false}, random);  // and one that all warps add
  for (int i = 0; i < 20; ++i) check_any_order(random);
  std::puts("sums in a given order: ok");
}
