// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/functor_rows_test.cc: the kernel that sums gradients and updates rows by the struct of
// any optimizer, beside the loop of the CPU on sums in double precision. Rows of one position and
// of hundreds, evicted rows, padding, new rows, widths that fill a warp or a part of it,
// gradients that are not finite, clipped ones.
#include "cuda/gradients/functor_rows.cuh"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "cpu/gradients/any_optimizer.h"
#include "cuda/gradients/sums.cuh"
#include "tests/core/test_table.h"

namespace {

using namespace dynemb;
using namespace dynemb::cuda;

constexpr int kSlots = kBucketCapacity;
constexpr int kSlotBits = 8;
constexpr Key kFirstKey = 1000;  // of slot 0

struct Arrays {
  std::vector<float> values, states[kMaxStates];
  std::vector<uint64_t> index = std::vector<uint64_t>(kBucketBytes / 8);
  std::vector<uint64_t> counters = std::vector<uint64_t>(kNumCounters);
};

struct Batch {
  std::vector<float> gradients;
  std::vector<int> slots;
  std::vector<int64_t> ids;
};

TableRef view_of(Arrays& arrays, OptimizerKind kind, int32_t dim) {
  auto const [wide, numbers, ints] = state_shape(kind);
  TableRef ref{};
  ref.index = reinterpret_cast<uint8_t*>(arrays.index.data());
  ref.values = arrays.values.data();
  ref.counters = arrays.counters.data();
  ref.counter_rows = 1;
  ref.num_buckets = ref.local_buckets = 1;
  ref.dim = dim;
  ref.value_type = ValueType::kFloat32;
  ref.num_states = wide + numbers;
  ref.skips_nonfinite = 1;
  for (int s = 0; s < ref.num_states; ++s) {
    ref.states[s] = arrays.states[s].data();
    ref.state_width[s] = s < wide ? dim : 1;
    ref.state_initial[s] = s < wide + numbers - ints ? 0.25f * static_cast<float>(s + 1) : 0.0f;
  }
  return ref;
}

// Every seventh row was evicted since the lookup, every third is new.
Arrays make_arrays(OptimizerKind kind, int32_t dim, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(0.1f, 1.0f);
  auto const [wide, numbers, ints] = state_shape(kind);
  Arrays arrays;
  for (int i = 0; i < kSlots * dim; ++i) arrays.values.push_back(normal(random));
  for (int s = 0; s < wide + numbers; ++s) {
    arrays.states[s].resize(size_t(kSlots * (s < wide ? dim : 1)));
    auto const counts = s >= wide + numbers - ints;
    for (auto& value : arrays.states[s]) {
      value = counts ? float_from_bits(random() % 3) : uniform(random);
    }
  }
  auto const ref = view_of(arrays, kind, dim);
  for (int slot = 0; slot < kSlots; ++slot) {
    *key_at(ref, slot) = slot % 7 == 0 ? Key{7} : kFirstKey + static_cast<Key>(slot);
    if (writes_states_late(ref) && slot % 3 == 0) *state_at(ref, 0, slot) = kUnwritten;
  }
  return arrays;
}

// A third of the positions belongs to three rows; some have none.
Batch make_batch(int32_t dim, int items, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Batch batch;
  for (int i = 0; i < items; ++i) {
    auto slot = static_cast<int>(random() % kSlots);
    if (i % 3 == 0) slot = 40 + slot % 3;
    if (i % 29 == 28) slot = kPaddingSlot;
    batch.slots.push_back(slot);
    batch.ids.push_back(static_cast<int64_t>(kFirstKey) + slot);
    for (int c = 0; c < dim; ++c) batch.gradients.push_back(normal(random));
  }
  for (int bad = 0; bad < items / 90; ++bad) {
    batch.gradients[random() % batch.gradients.size()] = bad % 2 == 0 ? NAN : -INFINITY;
  }
  return batch;
}

// What the loop of the CPU makes of the table. Returns how many rows it skips.
int update_on_cpu(TableRef const& table, AnyOptimizer const& optimizer, Batch const& batch) {
  auto const dim = static_cast<size_t>(table.dim);
  std::vector<std::vector<double>> sums(kSlots);
  for (size_t i = 0; i < batch.slots.size(); ++i) {
    auto const slot = batch.slots[i];
    if (slot < 0 || slot % 7 == 0) continue;
    sums[size_t(slot)].resize(dim);
    for (size_t c = 0; c < dim; ++c) sums[size_t(slot)][c] += batch.gradients[i * dim + c];
  }
  int skipped = 0;
  for (int slot = 0; slot < kSlots; ++slot) {
    if (sums[size_t(slot)].empty()) continue;
    std::vector<float> const sum(sums[size_t(slot)].begin(), sums[size_t(slot)].end());
    cpu::RowUpdates one;
    one.count = 1;
    one.slots[0] = slot;
    one.gradients[0] = sum.data();
    skipped += cpu::update_by_any(table, optimizer, one);
  }
  return skipped;
}

template <class Shape, class Functor>
void update_on_gpu(TableRef table, AnyOptimizer const& optimizer, Batch const& batch) {
  FeatureRef feature{};
  feature.ids = batch.ids.data();
  feature.id_type = IdType{};
  feature.num_ids = feature.num_bags = static_cast<int64_t>(batch.ids.size());
  feature.bag_size = 1;
  feature.row_type = ValueType::kFloat32;
  feature.rows = const_cast<float*>(batch.gradients.data());
  auto const key_of = [&](uint32_t item) {
    auto const slot = batch.slots[item];
    return slot < 0 ? SortedGradients<uint32_t>::kNoRow : static_cast<uint32_t>(slot);
  };
  std::vector<uint32_t> items(batch.slots.size()), keys;
  for (uint32_t i = 0; i < items.size(); ++i) items[i] = i;
  std::stable_sort(items.begin(), items.end(),
                   [&](uint32_t a, uint32_t b) { return key_of(a) < key_of(b); });
  for (auto const item : items) keys.push_back(key_of(item));
  uint32_t first_item[] = {0, static_cast<uint32_t>(items.size())};
  bool checks_keys[] = {true};
  CallView const view{1, 1, &table, &feature, nullptr, first_item, checks_keys, 0};
  auto const num_items = static_cast<int64_t>(items.size());
  auto const rows = num_partial_rows(num_items, Shape::piece);
  auto const stride = std::max((table.dim + 3) / 4 * 4, 4);
  std::vector<uint64_t> arrived(size_t(rows), 0);
  std::vector<float> partial(size_t(rows * stride), NAN);
  auto const call = PiecesCall<uint32_t, FunctorRows<Functor>>{
      view,
      {keys.data(), items.data(), num_items, kSlotBits},
      {arrived.data(), partial.data(), static_cast<uint32_t>(rows), stride},
      true,
      {&optimizer}};
  CHECK((launch_pieces<FloatFormats, Shape>(call, nullptr)) == cudaSuccess);
}

void compare(std::vector<float> const& got, std::vector<float> const& want) {
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(std::abs(got[i] - want[i]) <= 1e-4f + 1e-3f * std::abs(want[i]));
  }
}

template <class Shape>
void run(OptimizerKind kind, int32_t dim, int items, bool clips, std::mt19937& random) {
  testing::shuffle_blocks = [&](auto& order) { std::shuffle(order.begin(), order.end(), random); };
  auto arrays = make_arrays(kind, dim, random);
  auto expected = arrays;
  auto const batch = make_batch(dim, items, random);
  float hyper[kNumAnyHyper] = {clips ? 1.7f : 0.0f, clips ? 1.9f : 0.0f};
  float const own[kMaxHyper] = {0.05f, 0.01f, 0.5f, 0.9f, -0.5f, 1.0f, 0.25f, 1.0f, 0.0f, 0.0f};
  std::copy_n(own, kMaxHyper, hyper + kNumRowHyper);
  if (kind == OptimizerKind::kFtrl) hyper[kNumRowHyper + 5] = -0.5f;
  auto const optimizer = prepare_optimizer(kind, hyper, 3);
  auto const skipped = update_on_cpu(view_of(expected, kind, dim), optimizer, batch);
  auto const table = view_of(arrays, kind, dim);
  with_optimizer(kind, [&](auto type) {
    update_on_gpu<Shape, typename decltype(type)::Type>(table, optimizer, batch);
  });
  CHECK(arrays.counters[kNonfinite] == static_cast<uint64_t>(skipped));
  compare(arrays.values, expected.values);
  for (int s = 0; s < table.num_states; ++s) {
    if (s < table.num_states - state_shape(kind).ints) {
      compare(arrays.states[s], expected.states[s]);
    } else {
      CHECK(memcmp(arrays.states[s].data(), expected.states[s].data(), kSlots * 4) == 0);
    }
  }
}

}  // namespace

int main() {
  std::mt19937 random(1);
  for (int k = 0; k < static_cast<int>(OptimizerKind::kNumKinds); ++k) {
    auto const kind = static_cast<OptimizerKind>(k);
    for (auto const clips : {false, true}) {
      for (int const items : {1, 65, 700}) {
        for (int const dim : {4, 36, 64}) run<NarrowRows>(kind, dim, items, clips, random);
        for (int const dim : {100, 128}) run<WideRows>(kind, dim, items, clips, random);
        for (int const dim : {8, 128}) run<FewItems>(kind, dim, items, clips, random);
      }
    }
  }
}
