// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/core/rows_test.cc: pooled rows and optimizer steps of every width, bit for bit what plain
// loops over columns give: no instruction set may fuse or reorder an operation of one column.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "core/args.h"
#include "cpu/table_ops.h"
#include "tests/core/test_table.h"

namespace {

using namespace dynemb;
using dynemb::testing::random_at;
using dynemb::testing::TestTable;
using dynemb::testing::ThreadsPool;

float random_float(uint64_t i) {
  return static_cast<float>(random_at(i) >> 40) * 1.1920929e-7f - 1.0f;
}

// Jagged bags of weighted ids, one of them empty, with padding, in a table that holds every id.
struct Batch {
  int32_t dim;
  TestTable table;
  std::vector<Key> ids;
  std::vector<int32_t> offsets{0};
  std::vector<float> weights, rows, gradients;
  std::vector<int32_t> slots;
  std::vector<float> states[2];

  explicit Batch(int32_t d) : dim(d), table(64, d, ScorePolicy::kStep, true) {
    for (uint64_t bag = 0; bag < 300; ++bag) {
      for (uint64_t i = 0; i < bag % 7; ++i) {
        auto const random = random_at(bag * 7 + i);
        ids.push_back(random % 11 == 0 ? kEmptyKey : random_at(random % 2000));
        weights.push_back(random_float(random));
      }
      offsets.push_back(static_cast<int32_t>(ids.size()));
    }
    rows.resize(size_t(num_bags() * dim));
    slots.resize(ids.size());
    for (size_t i = 0; i < rows.size(); ++i) gradients.push_back(random_float(i));
    table.ref.initializer = {InitializerKind::kUniform, {-1.0f, 2.0f}};
    table.ref.num_states = 2;
    for (int s = 0; s < 2; ++s) {
      states[s].resize(size_t(table.ref.local_buckets * kBucketCapacity * dim));
      table.ref.states[s] = states[s].data();
      table.ref.state_width[s] = dim;
      table.ref.state_initial[s] = 0.5f;
    }
  }

  int64_t num_bags() const { return static_cast<int64_t>(offsets.size()) - 1; }
  float* row(int32_t slot) { return static_cast<float*>(table.ref.values) + int64_t{slot} * dim; }

  FeatureRef feature(std::vector<float>& outputs) {
    FeatureRef f{};
    f.ids = ids.data();
    f.num_ids = static_cast<int64_t>(ids.size());
    f.num_bags = num_bags();
    f.offsets = offsets.data();
    f.weights = weights.data();
    f.pooling = Pooling::kSum;
    f.rows = outputs.data();
    f.slots = slots.data();
    return f;
  }

  void lookup() {
    auto args = std::make_unique<LookupArgs>();
    uint64_t const no_score = 0;
    args->num_tables = args->num_features = 1;
    args->given = &no_score;
    args->tables[0] = table.ref;
    args->features[0] = feature(rows);
    ThreadsPool pool(4);
    cpu::lookup(*args, pool.pool);
  }

  void update(OptimizerKind kind, float const* hyper) {
    auto args = std::make_unique<UpdateArgs>();
    args->num_tables = args->num_features = 1;
    args->hyper = hyper;
    args->optimizers[0] = kind;
    args->tables[0] = table.ref;
    args->features[0] = feature(gradients);
    ThreadsPool pool(4);
    cpu::update(*args, pool.pool);
  }
};

void check_pooled_rows(Batch& batch) {
  for (int64_t bag = 0; bag < batch.num_bags(); ++bag) {
    for (int32_t c = 0; c < batch.dim; ++c) {
      float sum = 0.0f;
      for (auto i = batch.offsets[size_t(bag)]; i < batch.offsets[size_t(bag) + 1]; ++i) {
        auto const slot = batch.slots[size_t(i)];
        if (slot >= 0) sum += batch.weights[size_t(i)] * batch.row(slot)[c];
      }
      CHECK(batch.rows[size_t(bag * batch.dim + c)] == sum);
    }
  }
}

// Returns the sums of the gradients of all slots, in order of position.
std::vector<float> summed_gradients(Batch const& batch, std::vector<bool>& touched) {
  std::vector<float> sums(batch.states[0].size(), 0.0f);
  for (int64_t bag = 0; bag < batch.num_bags(); ++bag) {
    for (auto i = batch.offsets[size_t(bag)]; i < batch.offsets[size_t(bag) + 1]; ++i) {
      auto const slot = batch.slots[size_t(i)];
      if (slot < 0) continue;
      touched[size_t(slot)] = true;
      for (int32_t c = 0; c < batch.dim; ++c) {
        auto const gradient = batch.gradients[size_t(bag * batch.dim + c)];
        sums[size_t(slot * batch.dim + c)] += batch.weights[size_t(i)] * gradient;
      }
    }
  }
  return sums;
}

void check_update(int32_t dim, OptimizerKind kind) {
  Batch batch(dim);
  batch.lookup();
  check_pooled_rows(batch);
  batch.lookup();  // every id is there now
  check_pooled_rows(batch);

  float const hyper[kNumHyperParameters] = {0.1f, 1e-3f, 0.9f, 0.999f, 0.01f};
  auto const optimizer = make_optimizer(kind, hyper, 1);
  std::vector<bool> touched(batch.states[0].size() / size_t(dim));
  auto const sums = summed_gradients(batch, touched);
  auto const* const values = static_cast<float*>(batch.table.ref.values);
  std::vector<float> wanted(values, values + sums.size());
  std::vector<float> const initial(sums.size(), 0.5f);
  std::vector<float> state[2] = {initial, initial};
  for (size_t i = 0; i < sums.size(); ++i) {
    if (!touched[i / size_t(dim)]) continue;
    auto const g = sums[i];
    if (kind == OptimizerKind::kSgd) wanted[i] = sgd(optimizer, wanted[i], g);
    if (kind == OptimizerKind::kAdagrad) {
      wanted[i] = adagrad(optimizer, wanted[i], g, &state[0][i]);
    }
    if (kind == OptimizerKind::kAdam) {
      wanted[i] = adam(optimizer, wanted[i], g, &state[0][i], &state[1][i]);
    }
  }
  batch.update(kind, hyper);
  for (size_t i = 0; i < sums.size(); ++i) {
    CHECK(values[i] == wanted[i]);
    if (kind == OptimizerKind::kSgd || !touched[i / size_t(dim)]) continue;
    CHECK(batch.states[0][i] == state[0][i] && batch.states[1][i] == state[1][i]);
  }
}

// Row-wise Adagrad adds squares in an order of its own, so to rounding.
void check_rowwise_adagrad(int32_t dim) {
  Batch batch(dim);
  batch.table.ref.num_states = 1;
  batch.table.ref.state_width[0] = 1;
  batch.lookup();
  float const hyper[kNumHyperParameters] = {0.1f, 1e-3f, 0.0f, 0.0f, 0.0f};
  std::vector<bool> touched(batch.states[0].size() / size_t(dim));
  auto const sums = summed_gradients(batch, touched);
  batch.update(OptimizerKind::kRowwiseAdagrad, hyper);
  for (size_t slot = 0; slot < touched.size(); ++slot) {
    if (!touched[slot]) continue;
    double squares = 0.0;
    for (size_t c = 0; c < size_t(dim); ++c) {
      auto const g = static_cast<double>(sums[slot * size_t(dim) + c]);
      squares += g * g;
    }
    auto const state = static_cast<double>(batch.states[0][slot]);
    CHECK(std::abs(state - (0.5 + squares / dim)) < 1e-5 * (0.5 + squares / dim));
  }
}

// Sums of groups, seven of them for each of fifteen devices, in an array with room beside them.
void check_sums_of_groups(int32_t dim) {
  constexpr int32_t kRoom = 7, kGroups = 15 * kRoom;
  Batch batch(dim);
  for (size_t i = 0; i < batch.slots.size(); ++i) {
    batch.slots[i] = static_cast<int32_t>(random_at(i) % (kGroups + 5)) - 5;  // some are of none
  }
  RowPlaces const places{kRoom, 0, {(kRoom * dim + 3) / 4 * 4 + 8}};
  constexpr float kUntouched = -77.0f;
  std::vector<float> array(size_t(15 * places.stride), kUntouched);
  auto args = std::make_unique<ReduceArgs>();
  args->num_tables = args->num_features = 1;
  args->tables[0].dim = dim;
  args->tables[0].local_buckets = 1;
  args->tables[0].num_groups = kGroups;
  args->features[0] = batch.feature(batch.gradients);
  args->features[0].ids = nullptr;  // there is no table to look into
  args->sums[0] = {nullptr, array.data(), places, kGroups, ValueType::kFloat32};
  ThreadsPool pool(4);
  cpu::reduce(*args, pool.pool);

  std::vector<bool> touched(kGroups);
  batch.states[0].resize(size_t(kGroups * dim));
  auto const sums = summed_gradients(batch, touched);
  std::vector<float> wanted(array.size(), kUntouched);
  for (int32_t group = 0; group < kGroups; ++group) {
    if (!touched[size_t(group)]) continue;
    auto const* const sum = sums.data() + group * dim;
    std::copy(sum, sum + dim, wanted.data() + row_offset(places, group, dim));
  }
  CHECK(array == wanted);
}

}  // namespace

int main() {
  for (auto const dim : {1, 3, 16, 33, 64, 100}) {
    for (auto const kind : {OptimizerKind::kSgd, OptimizerKind::kAdagrad, OptimizerKind::kAdam}) {
      check_update(dim, kind);
    }
    check_rowwise_adagrad(dim);
    check_sums_of_groups(dim);
  }
  std::puts("rows: ok");
  return 0;
}
