// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/pieces_test.cc: the kernel that sums gradients and updates rows, in every shape of its
// blocks, beside sums in double precision. Rows of one position and of thousands, rows that have
// left, padding, new rows, widths that fill a warp, a part of it, or take several steps. Rows of 16
// bits that are rounded stochastically have the bits of core/stochastic.h.
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "core/stochastic.h"
#include "cuda/gradients/sums.cuh"
#include "cuda/gradients/update_rows.cuh"
#include "tests/core/test_table.h"

namespace {

using namespace dynemb;
using namespace dynemb::cuda;

constexpr int kBuckets = 4;
constexpr int kSlots = kBuckets * kBucketCapacity;
constexpr int kSlotBits = 10;
constexpr Key kFirstKey = 1000;  // of slot 0
constexpr uint64_t kStepOfTest = 3;

struct Scenario {
  std::vector<int> dims;  // of the tables
  int items;              // of a table
  double popular;         // part of the items that go to three rows
  bool rows_leave;        // some, since the lookup
};

// A table, its gradients, and what it is to become.
struct Table {
  std::vector<float> values, state[2], gradients;
  std::vector<uint16_t> halves, half_gradients;  // the same where a test has 16 bits
  std::vector<uint64_t> index = std::vector<uint64_t>(kBuckets * kBucketBytes / 8);
  std::vector<uint64_t> counters = std::vector<uint64_t>(kNumCounters);
  std::vector<int64_t> ids;
  std::vector<int> slots;  // of the items
  std::vector<bool> left = std::vector<bool>(kSlots);
  std::vector<float> expected, expected_state[2];
  uint64_t expected_lost = 0;
  uint64_t expected_nonfinite = 0;
  Optimizer optimizer;
  TableRef ref{};
  FeatureRef feature{};
};

// Random numbers are drawn once: a table takes some that follow each other.
struct Drawn {
  std::array<float, 65536> normal, positive;

  Drawn() {
    std::mt19937 random(5);
    std::normal_distribution<float> normals;
    std::uniform_real_distribution<float> uniform(0.1f, 1.0f);
    for (auto& number : normal) number = normals(random);
    for (auto& number : positive) number = uniform(random);
  }
};

Drawn const& drawn() {
  static Drawn const once;
  return once;
}

void make_table(Table& table, int dim, int items, OptimizerKind kind, Scenario const& scenario,
                std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(0.1f, 1.0f);
  auto const draw = [&](std::vector<float>& array, size_t size, auto const& numbers) {
    array.resize(size);
    auto next = random();
    for (auto& value : array) value = numbers[next++ % numbers.size()];
  };
  auto const width = is_rowwise(kind) ? 1 : dim;
  draw(table.values, size_t(kSlots * dim), drawn().normal);
  draw(table.state[0], size_t(kSlots * width), drawn().positive);
  draw(table.state[1], size_t(kSlots * width), drawn().positive);
  draw(table.gradients, size_t(items * dim), drawn().normal);
  for (int bad = 0; bad < items / 40; ++bad) {
    table.gradients[random() % table.gradients.size()] = bad % 2 == 0 ? NAN : -INFINITY;
  }
  auto& ref = table.ref;
  ref.index = reinterpret_cast<uint8_t*>(table.index.data());
  ref.values = table.values.data();
  for (int s = 0; s < 2; ++s) {
    ref.states[s] = table.state[s].data();
    ref.state_width[s] = width;
    ref.state_initial[s] = 0.25f * static_cast<float>(s);
  }
  ref.counters = table.counters.data();
  ref.counter_rows = 1;
  ref.num_buckets = kBuckets;
  ref.local_buckets = kBuckets;
  ref.dim = dim;
  ref.value_type = ValueType::kFloat32;
  ref.num_states = num_states(kind);
  ref.skips_nonfinite = static_cast<int16_t>(random() % 4 != 0);
  for (int s = 0; s < kSlots; ++s) {
    table.left[size_t(s)] = scenario.rows_leave && random() % 5 == 0;
    *key_at(ref, s) = table.left[size_t(s)] ? Key{7} : kFirstKey + static_cast<Key>(s);
    if (writes_states_late(ref) && random() % 4 == 0) *state_at(ref, 0, s) = kUnwritten;
  }
  for (int i = 0; i < items; ++i) {
    auto const where = uniform(random);
    auto slot = static_cast<int>(random() % kSlots);
    if (where < scenario.popular) slot %= 3;
    if (where > 0.97f) slot = kPaddingSlot;
    table.slots.push_back(slot);
    table.ids.push_back(static_cast<int64_t>(kFirstKey) + slot);
  }
  float const hyper[kNumHyperParameters] = {0.01f * static_cast<float>(1 + random() % 5), 1e-8f,
                                            0.9f, 0.99f, 0.01f};
  table.optimizer = make_optimizer(kind, hyper, kStepOfTest);
}

std::vector<uint16_t> to_halves(std::vector<float>& floats) {
  std::vector<uint16_t> halves;
  for (auto& value : floats) {
    BFloat16 half;
    from_float(value, &half);
    halves.push_back(half.bits);
    value = to_float(half);
  }
  return halves;
}

// Makes rows of bfloat16, and their gradients too, or not.
void make_half(Table& table, bool half_gradients) {
  table.halves = to_halves(table.values);
  table.ref.values = table.halves.data();
  table.ref.value_type = ValueType::kBFloat16;
  table.ref.rounds_stochastically = 1;
  table.counters[kSeed] = 0x1234'5678'9abc'def0u;
  table.counters[kFirstColumn] = 4;
  if (!half_gradients) return;
  table.half_gradients = to_halves(table.gradients);
  table.feature.rows = table.half_gradients.data();
  table.feature.row_type = ValueType::kBFloat16;
}

void describe_feature(Table& table, int32_t number) {
  auto& feature = table.feature;
  feature.ids = table.ids.data();
  feature.id_type = IdType{};
  feature.table = number;
  feature.num_ids = feature.num_bags = static_cast<int64_t>(table.ids.size());
  feature.bag_size = 1;
  feature.row_type = ValueType::kFloat32;
  feature.rows = table.gradients.data();
}

// Computes one row and its states from the sum of its gradients.
void expect_row(Table& table, int slot, std::vector<double> const& sum) {
  auto const& o = table.optimizer;
  auto const dim = table.ref.dim;
  auto* const w = table.expected.data() + slot * dim;
  auto const finite =
      std::all_of(sum.begin(), sum.end(), [](double g) { return std::isfinite(g); });
  if (!finite && table.ref.skips_nonfinite != 0) {
    ++table.expected_nonfinite;
    return;
  }
  auto const width = table.ref.state_width[0];
  float* const state[2] = {table.expected_state[0].data() + slot * width,
                           table.expected_state[1].data() + slot * width};
  if (has_unwritten_states(table.ref, slot)) {
    for (int s = 0; s < 2; ++s) std::fill_n(state[s], width, table.ref.state_initial[s]);
  }
  auto squares = 0.0;
  for (auto const g : sum) squares += g * g;
  auto rate = 0.0f;
  if (is_rowwise(o.kind)) {
    rate = rowwise_adagrad_rate(o, static_cast<float>(squares / dim), state[0]);
  }
  for (int c = 0; c < dim; ++c) {
    auto const g = static_cast<float>(sum[size_t(c)]);
    switch (o.kind) {
      case OptimizerKind::kSgd:
        w[c] = sgd(o, w[c], g);
        break;
      case OptimizerKind::kAdagrad:
        w[c] = adagrad(o, w[c], g, state[0] + c);
        break;
      case OptimizerKind::kRowwiseAdagrad:
        w[c] -= rate * g;
        break;
      case OptimizerKind::kAdam:
        w[c] = adam(o, w[c], g, state[0] + c, state[1] + c);
        break;
      default:
        break;
    }
  }
}

void expect(Table& table) {
  table.expected = table.values;
  for (int s = 0; s < 2; ++s) table.expected_state[s] = table.state[s];
  auto const dim = table.ref.dim;
  std::vector<std::vector<double>> sums(kSlots);
  for (size_t i = 0; i < table.slots.size(); ++i) {
    auto const slot = table.slots[i];
    if (slot < 0) continue;
    if (table.left[size_t(slot)]) {
      ++table.expected_lost;
      continue;
    }
    auto& sum = sums[size_t(slot)];
    sum.resize(size_t(dim));
    for (int c = 0; c < dim; ++c) sum[size_t(c)] += table.gradients[i * size_t(dim) + size_t(c)];
  }
  for (int s = 0; s < kSlots; ++s) {
    if (!sums[size_t(s)].empty()) expect_row(table, s, sums[size_t(s)]);
  }
}

// Rounds expected rows as an update does.
std::vector<uint16_t> rounded(Table const& table) {
  auto const seed = rounding_seed(table.counters.data(), kStepOfTest);
  auto const dim = static_cast<size_t>(table.ref.dim);
  std::vector<uint16_t> result;
  for (size_t i = 0; i < table.expected.size(); ++i) {
    uint32_t random[4];
    auto const key = *key_at(table.ref, static_cast<int32_t>(i / dim));
    rounding_bits(seed, key, static_cast<uint32_t>(i % dim / 4), random);
    BFloat16 half;
    round_stochastically(table.expected[i], random[i % dim % 4], &half);
    result.push_back(half.bits);
  }
  return result;
}

// A sum in another order may be on the other side of a random number, seldom.
void compare_halves(Table const& table) {
  auto const want = rounded(table);
  size_t others = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    auto const a = to_float(BFloat16{table.halves[i]}), b = to_float(BFloat16{want[i]});
    others += table.halves[i] != want[i] && std::isfinite(b);
    CHECK(!std::isfinite(b) || std::abs(a - b) <= 1e-4f + 0.01f * std::abs(b));
  }
  CHECK(others <= 3 + want.size() / 200);
}

void compare(std::vector<float> const& got, std::vector<float> const& want) {
  for (size_t i = 0; i < got.size(); ++i) {
    auto const both_bad = !std::isfinite(got[i]) && !std::isfinite(want[i]);
    CHECK(both_bad || std::abs(got[i] - want[i]) <= 1e-4f + 1e-3f * std::abs(want[i]));
  }
}

// What the formats of a kernel say of gradients; those of any formats vary.
template <class Formats>
bool has_half_gradients(unsigned seed) {
  if constexpr (Formats::kKnown) return Formats::Row::type == ValueType::kBFloat16;
  return seed % 2 == 0;
}

// kKind: see UpdateRows; kAnyKind gives each table an optimizer of its own. kRounds: every second
// table, or all of one kind, have rows of 16 bits.
template <class Shape, int kKind, class Formats, bool kRounds>
void run(Scenario const& scenario, unsigned seed) {
  std::mt19937 random(seed);
  testing::shuffle_blocks = [&](auto& order) { std::shuffle(order.begin(), order.end(), random); };
  std::vector<Table> tables(scenario.dims.size());
  std::vector<TableRef> refs;
  std::vector<FeatureRef> features;
  std::vector<Optimizer> optimizers;
  std::vector<uint32_t> first_item, keys, items;
  int32_t stride = 4;
  for (size_t t = 0; t < tables.size(); ++t) {
    auto& table = tables[t];
    auto const kind = static_cast<OptimizerKind>(kKind == kAnyKind ? int(t + seed) % 4 : kKind);
    auto const count = scenario.items + static_cast<int>(t % 3) * 5;
    make_table(table, scenario.dims[t], count, kind, scenario, random);
    describe_feature(table, static_cast<int32_t>(t));
    if (kRounds && (kKind != kAnyKind || (t + seed) % 2 == 0)) {
      make_half(table, has_half_gradients<Formats>(seed));
    }
    expect(table);
    refs.push_back(table.ref);
    features.push_back(table.feature);
    optimizers.push_back(table.optimizer);
    stride = std::max(stride, (table.ref.dim + 3) / 4 * 4);
    auto const first = static_cast<uint32_t>(items.size());
    first_item.push_back(first);
    auto const key_of = [&](uint32_t item) {
      auto const slot = table.slots[item - first];
      return slot < 0 ? SortedGradients<uint32_t>::kNoRow
                      : static_cast<uint32_t>(t) << kSlotBits | static_cast<uint32_t>(slot);
    };
    for (int i = 0; i < count; ++i) items.push_back(first + static_cast<uint32_t>(i));
    std::stable_sort(items.begin() + first, items.end(),
                     [&](uint32_t a, uint32_t b) { return key_of(a) < key_of(b); });
    for (auto i = first; i < items.size(); ++i) keys.push_back(key_of(items[i]));
  }
  first_item.push_back(static_cast<uint32_t>(items.size()));
  auto const asks = std::make_unique<bool[]>(tables.size());
  std::fill_n(asks.get(), tables.size(), scenario.rows_leave);

  auto const num_tables = static_cast<int32_t>(tables.size());
  CallView const view{num_tables, num_tables,        refs.data(), features.data(),
                      nullptr,    first_item.data(), asks.get(),  0};
  auto const num_items = static_cast<int64_t>(items.size());
  auto const rows = num_partial_rows(num_items, Shape::piece);
  std::vector<uint64_t> arrived(size_t(rows), 0);
  std::vector<float> partial(size_t(rows * stride), NAN);
  auto const skips = std::any_of(refs.begin(), refs.end(),
                                 [](TableRef const& ref) { return ref.skips_nonfinite != 0; });
  std::vector<RoundingSeed> seeds;
  for (auto const& table : tables) {
    seeds.push_back(rounding_seed(table.counters.data(), kStepOfTest));
  }
  // What cuda/gradients/large_gradients.cuh would say, or that it was not asked.
  uint64_t const is_large = std::any_of(
      tables.begin(), tables.end(), [](auto const& table) { return table.expected_nonfinite > 0; });
  launch_pieces<Formats, Shape>(
      PiecesCall<uint32_t, UpdateRows<kKind, kRounds>>{
          view,
          {keys.data(), items.data(), num_items, kSlotBits},
          {arrived.data(), partial.data(), static_cast<uint32_t>(rows), stride},
          true,
          {optimizers.data(), skips, scenario.rows_leave ? nullptr : &is_large, seeds.data()}},
      nullptr);
  for (auto const& table : tables) {
    CHECK(table.counters[kLostUpdates] == table.expected_lost);
    CHECK(table.counters[kNonfinite] == table.expected_nonfinite);
    if (table.halves.empty()) {
      compare(table.values, table.expected);
    } else {
      compare_halves(table);
    }
    for (int s = 0; s < table.ref.num_states; ++s) compare(table.state[s], table.expected_state[s]);
  }
}

template <class Shape, int kKind, class Formats = FloatFormats, bool kRounds = false>
void run_all(std::vector<std::vector<int>> const& widths) {
  unsigned seed = 0;
  for (auto const& dims : widths) {
    for (int const items : {1, 64, 65, 257, 700}) {
      for (auto const popular : {0.0, 0.6, 0.9}) {
        for (auto const leave : {false, true}) {
          run<Shape, kKind, Formats, kRounds>({dims, items, popular, leave}, ++seed);
        }
      }
    }
  }
}

std::vector<std::vector<int>> const kNarrow{{64}, {8, 64, 32, 4}, {60, 16}};
std::vector<std::vector<int>> const kWide{{128}, {100, 8, 128}};
std::vector<std::vector<int>> const kLong{{132}, {256, 64, 8}};
std::vector<std::vector<int>> const kWhole{{300}, {512, 260}, {132, 64, 8}};
std::vector<std::vector<int>> const kWidest{{768}, {1024, 516, 16}};
std::vector<std::vector<int>> const kOdd{{1, 3, 7, 62}};
std::vector<std::vector<int>> const kLongAndOdd{{129, 5, 132, 8}};

template <int kKind>
void run_shapes() {
  run_all<NarrowRows, kKind>(kNarrow);
  run_all<WideRows, kKind>(kWide);
  run_all<LongRows, kKind>(kLong);
  run_all<FewItems, kKind>(kNarrow);
  run_all<FewItems, kKind>(kWide);
  run_all<FewLongRows, kKind>(kLong);
}

// Rows that are summed whole.
template <int kKind>
void run_whole_rows() {
  run_all<WholeRows<4>, kKind>(kWhole);
  run_all<WholeRows<8>, kKind>(kWhole);
  run_all<WholeRows<8>, kKind>(kWidest);
  run_all<WholeRows<4>, kKind, HalfFormats, true>(kWhole);
  run_all<WholeRows<8>, kKind, MixedFormats, true>(kWidest);
}

template <int kKind>
void run_rounding() {
  run_all<NarrowRows, kKind, HalfFormats, true>(kNarrow);
  run_all<WideRows, kKind, MixedFormats, true>(kWide);
  run_all<LongRows, kKind, HalfFormats, true>(kLong);
  run_all<FewItems, kKind, MixedFormats, true>(kNarrow);
}

// The words that a tuned kernel stores, beside the rounding of each number. Every number of `edges`
// stands beside every other one: one of four may take the longer way of all.
void test_words() {
  auto const largest = std::numeric_limits<float>::max();
  std::vector<float> const edges{0.0f,     -0.0f,         1.0f,          -1.00390625f, 3.0e-41f,
                                 -1.1f,    3.3895314e38f, 3.3961775e38f, largest,      -largest,
                                 INFINITY, -INFINITY,     NAN,           0.3f};
  RoundingSeed const seed{0x1234'5678'9abc'def0u, 7, 0, 0};
  for (Key key = 0; key < 300; ++key) {
    for (size_t i = 0; i < edges.size(); ++i) {
      auto const at = [&](size_t step) { return edges[(i + step * (key % 5 + 1)) % edges.size()]; };
      float const values[4] = {at(0), at(1), at(2), at(3)};
      auto const quad = static_cast<uint32_t>(key % 3);
      auto const words = rounded_halves(seed, key, quad, {at(0), at(1), at(2), at(3)});
      uint32_t random[4];
      rounding_bits(seed, key, quad, random);
      for (int c = 0; c < 4; ++c) {
        BFloat16 want;
        round_stochastically(values[c], random[c], &want);
        auto const word = c < 2 ? words.x : words.y;
        CHECK(static_cast<uint16_t>(word >> c % 2 * 16) == want.bits);
      }
    }
  }
}

template <int kKind>
void run_odd() {
  run_all<NarrowRows, kKind, FloatWidths>(kOdd);
  run_all<WideRows, kKind, FloatWidths>(kOdd);
  run_all<FewItems, kKind, FloatWidths>(kOdd);
}

}  // namespace

int main() {
  test_words();
  run_odd<static_cast<int>(OptimizerKind::kSgd)>();
  run_odd<static_cast<int>(OptimizerKind::kAdagrad)>();
  run_odd<static_cast<int>(OptimizerKind::kRowwiseAdagrad)>();
  run_odd<static_cast<int>(OptimizerKind::kAdam)>();
  run_shapes<static_cast<int>(OptimizerKind::kSgd)>();
  run_shapes<static_cast<int>(OptimizerKind::kAdagrad)>();
  run_shapes<static_cast<int>(OptimizerKind::kRowwiseAdagrad)>();
  run_shapes<static_cast<int>(OptimizerKind::kAdam)>();
  run_whole_rows<static_cast<int>(OptimizerKind::kSgd)>();
  run_whole_rows<static_cast<int>(OptimizerKind::kAdagrad)>();
  run_whole_rows<static_cast<int>(OptimizerKind::kRowwiseAdagrad)>();
  run_whole_rows<static_cast<int>(OptimizerKind::kAdam)>();
  run_rounding<static_cast<int>(OptimizerKind::kSgd)>();
  run_rounding<static_cast<int>(OptimizerKind::kRowwiseAdagrad)>();
  run_rounding<static_cast<int>(OptimizerKind::kAdam)>();
  run_all<NarrowRows, kAnyKind, AnyFormats, true>(kOdd);
  run_all<LongRows, kAnyKind, AnyFormats, true>(kLongAndOdd);
  run_all<FewItems, kAnyKind, AnyFormats, true>(kOdd);
}
