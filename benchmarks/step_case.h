// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// benchmarks/step_case.h: the cases of benchmarks/suite/workloads.py and their ids, for programs
// that run steps without JAX. Ids are drawn by another generator, from the same distributions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/args.h"

namespace dynemb::bench {

struct Case {
  int32_t tables;
  int64_t rows;  // distinct ids of each table
  int32_t dim;
  int64_t batch;  // bags of a table
  int64_t bag;
  bool pooled;

  // Of each table.
  int64_t ids() const { return batch * bag; }
  int64_t bags() const { return pooled ? batch : ids(); }
  size_t row_floats() const { return static_cast<size_t>(bags() * dim); }
  // Two rows for three slots.
  int64_t buckets() const { return (rows * 3 / 2 + kBucketCapacity - 1) / kBucketCapacity; }
  size_t index_bytes() const { return static_cast<size_t>(buckets() * kBucketBytes); }
  size_t slots() const { return static_cast<size_t>(buckets() * kBucketCapacity); }
};

inline std::map<std::string, Case> const kCases{
    {"a", {1, 10'000'000, 128, 65'536, 1, true}},
    {"b", {1, 10'000'000, 128, 16'384, 20, true}},
    {"c", {26, 1'000'000, 128, 16'384, 10, true}},
    {"c64", {26, 1'000'000, 64, 16'384, 10, true}},
    {"d", {1, 10'000'000, 128, 1'048'576, 1, false}},
    {"e", {10, 1'677'721, 128, 104'857, 1, false}},
    {"p", {1, 1'000'000, 64, 8'192, 10, true}},
    {"q", {26, 100'000, 32, 2'048, 1, true}},
    {"r", {1, 1'000'000, 128, 65'536, 1, false}},
    {"u8x10", {1, 300'000, 8, 4096, 10, true}},
    {"u8x1", {1, 300'000, 8, 40'960, 1, true}},
    {"u16x10", {1, 300'000, 16, 4096, 10, true}},
    {"u48x10", {1, 300'000, 48, 4096, 10, true}},
};

inline std::map<std::string, OptimizerKind> const kOptimizers{
    {"sgd", OptimizerKind::kSgd},
    {"adagrad", OptimizerKind::kAdagrad},
    {"rowwise_adagrad", OptimizerKind::kRowwiseAdagrad},
    {"adam", OptimizerKind::kAdam},
};

// find, lookup, or an optimizer.
inline bool is_work(std::string const& name) {
  return name == "find" || name == "lookup" || kOptimizers.count(name) == 1;
}

// The id of a rank: below the reserved ones.
inline Key id_of(uint64_t rank, int32_t table) {
  return hash_number(rank + (static_cast<uint64_t>(table) << 32)) >> 1;
}

// Ranks of ids: all as likely, or that of rank r as r^-1.05 (workloads.POWER).
class Ranks {
 public:
  Ranks(int64_t rows, bool uniform) : rows_(static_cast<uint64_t>(rows)), uniform_(uniform) {
    auto sum = 0.0;
    for (int64_t r = 0; !uniform && r < rows; ++r) {
      up_to_.push_back(sum += std::pow(static_cast<double>(r + 1), -1.05));
    }
  }

  uint64_t draw(std::mt19937_64& random) const {
    if (uniform_) return random() % rows_;
    auto const at = std::uniform_real_distribution<double>(0.0, up_to_.back())(random);
    auto const found = std::lower_bound(up_to_.begin(), up_to_.end(), at) - up_to_.begin();
    return std::min(static_cast<uint64_t>(found), rows_ - 1);
  }

 private:
  uint64_t rows_;
  bool uniform_;
  std::vector<double> up_to_;
};

// All but its arrays.
inline TableRef describe_table(Case const& c) {
  TableRef table{};
  table.counter_rows = 1;
  table.num_buckets = static_cast<uint64_t>(c.buckets());
  table.local_buckets = c.buckets();
  table.dim = c.dim;
  table.value_type = ValueType::kFloat32;
  table.policy = ScorePolicy::kStep;
  table.evicts = kEvicts;
  table.initializer = {InitializerKind::kUniform, {0.0f, 1.0f}};
  table.eval_initializer = {InitializerKind::kConstant, {}};
  return table;
}

// All but its arrays; the rows of `table`, one feature each.
inline FeatureRef describe_feature(Case const& c, int32_t table) {
  FeatureRef feature{};
  feature.table = table;
  feature.num_ids = c.ids();
  feature.num_bags = c.bags();
  feature.bag_size = c.pooled ? c.bag : 1;
  feature.pooling = c.pooled ? Pooling::kSum : Pooling::kNone;
  feature.row_type = ValueType::kFloat32;
  return feature;
}

// Slots for all ids of a table, the only one of its call.
inline FeatureRef describe_filling(Case const& c) {
  FeatureRef feature{};
  feature.num_ids = feature.num_bags = c.rows;
  feature.bag_size = 1;
  feature.pooling = Pooling::kNoRows;
  return feature;
}

// In an order that says nothing about their popularity.
inline std::vector<Key> all_ids(Case const& c, int32_t table) {
  constexpr int64_t kPrime = 7919;
  std::vector<Key> ids;
  for (int64_t i = 0; i < c.rows; ++i) {
    ids.push_back(id_of(static_cast<uint64_t>(i * kPrime % c.rows), table));
  }
  return ids;
}

inline std::vector<float> hyper_parameters(Case const& c) {
  std::vector<float> values;
  for (int32_t t = 0; t < c.tables; ++t) {
    for (auto const value : {0.01f, 1e-8f, 0.1f, 0.001f, 0.0f}) values.push_back(value);
  }
  return values;
}

constexpr int kBatches = 4;

// The ids of all batches: [kBatches, tables, ids].
inline std::vector<Key> draw_ids(Case const& c, bool uniform) {
  Ranks const ranks(c.rows, uniform);
  std::vector<Key> ids;
  for (int batch = 0; batch < kBatches; ++batch) {
    for (int32_t t = 0; t < c.tables; ++t) {
      std::mt19937_64 random(static_cast<uint64_t>(batch * 1000 + t));
      for (int64_t i = 0; i < c.ids(); ++i) ids.push_back(id_of(ranks.draw(random), t));
    }
  }
  return ids;
}

}  // namespace dynemb::bench
