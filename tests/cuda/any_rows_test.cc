// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/any_rows_test.cc: the kernel that runs every optimizer, beside the loop of the CPU,
// whose formulas it shares and whose way through a row it does not. Widths that fill a warp, a part
// of it, or take several steps; new rows, unused places, gradients that are not finite, clipped
// ones; states of 16 bits.
#include "cuda/gradients/any_rows.cuh"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "cpu/gradients/any_optimizer.h"
#include "tests/core/test_table.h"

namespace {

using namespace dynemb;
using namespace dynemb::cuda;

constexpr int kSlots = 128;
constexpr int kPlaces = 70;  // some of them unused

enum class Rows { kFloat32, kNearest, kStochastic };

struct Arrays {
  std::vector<float> floats, states[kMaxStates];
  std::vector<uint16_t> halves, half_states[kMaxStates];
  std::vector<uint64_t> counters = std::vector<uint64_t>(kNumCounters);
  std::vector<Entry> index = std::vector<Entry>((kBucketBytes + sizeof(Entry) - 1) / sizeof(Entry));
};

// half_states: the wide ones are bfloat16.
TableRef view_of(Arrays& arrays, OptimizerKind kind, int32_t dim, Rows rows, bool half_states) {
  auto const type = rows == Rows::kFloat32 ? ValueType::kFloat32 : ValueType::kBFloat16;
  auto const [wide, numbers, ints] = state_shape(kind);
  TableRef ref{};
  ref.values = type == ValueType::kFloat32 ? static_cast<void*>(arrays.floats.data())
                                           : static_cast<void*>(arrays.halves.data());
  ref.counters = arrays.counters.data();
  ref.index = reinterpret_cast<uint8_t*>(arrays.index.data());
  ref.rounds_stochastically = rows == Rows::kStochastic ? 1 : 0;
  ref.counter_rows = 1;
  ref.dim = dim;
  ref.value_type = type;
  ref.num_states = wide + numbers;
  ref.skips_nonfinite = 1;
  for (int s = 0; s < ref.num_states; ++s) {
    ref.states[s] = arrays.states[s].data();
    if (half_states && s < wide) {
      ref.states[s] = reinterpret_cast<float*>(arrays.half_states[s].data());
      ref.half_states = static_cast<uint8_t>(ref.half_states | 1 << s);
    }
    ref.state_width[s] = s < wide ? dim : 1;
    ref.state_initial[s] = s < wide + numbers - ints ? 0.25f * static_cast<float>(s + 1) : 0.0f;
  }
  return ref;
}

Arrays make_arrays(OptimizerKind kind, int32_t dim, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(0.1f, 1.0f);
  auto const [wide, numbers, ints] = state_shape(kind);
  Arrays arrays;
  for (int i = 0; i < kSlots * dim; ++i) {
    arrays.floats.push_back(normal(random));
    BFloat16 half;
    from_float(arrays.floats.back(), &half);
    arrays.halves.push_back(half.bits);
  }
  for (int s = 0; s < wide + numbers; ++s) {
    arrays.states[s].resize(size_t(kSlots * (s < wide ? dim : 1)));
    auto const counts = s >= wide + numbers - ints;
    for (auto& value : arrays.states[s]) {
      value = counts ? float_from_bits(random() % 3) : uniform(random);
    }
  }
  for (int c : {kSeed, kStep}) arrays.counters[size_t(c)] = random();
  arrays.counters[kFirstColumn] = 4;
  for (auto& entry : arrays.index) entry.key = uint64_t{random()} << 20 | random();
  if (wide > 0 && dim > 1) {
    for (int slot = 0; slot < kSlots; slot += 3) arrays.states[0][size_t(slot * dim)] = kUnwritten;
  }
  for (int s = 0; s < wide; ++s) {
    for (auto const value : arrays.states[s]) {
      BFloat16 half;
      from_float(value, &half);
      arrays.half_states[s].push_back(value == kUnwritten ? kUnwrittenHalf : half.bits);
    }
  }
  return arrays;
}

void compare(std::vector<float> const& got, std::vector<float> const& want) {
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(std::abs(got[i] - want[i]) <= 1e-5f + 1e-4f * std::abs(want[i]));
  }
}

void compare_halves(std::vector<uint16_t> const& given, std::vector<uint16_t> const& expected) {
  size_t others = 0;
  for (size_t i = 0; i < given.size(); ++i) {
    others += given[i] != expected[i];
    auto const got = to_float(BFloat16{given[i]}), want = to_float(BFloat16{expected[i]});
    CHECK(std::abs(got - want) <= 1e-5f + 0.01f * std::abs(want));  // a unit in the last place
  }
  CHECK(others <= given.size() / 100);  // random bits are the same
}

// The row of each kind has a kernel of its own.
cudaError_t launch_any(OptimizerKind kind, bool known, int64_t blocks, AnyCall const& call) {
  auto status = cudaErrorInvalidValue;
  with_optimizer(kind, [&](auto type) {
    using Functor = typename decltype(type)::Type;
    status = known ? launch(any_rows_kernel<Functor, FloatFormats>, blocks, nullptr, call)
                   : launch(any_rows_kernel<Functor, AnyFormats>, blocks, nullptr, call);
  });
  return status;
}

void run(OptimizerKind kind, int32_t dim, Rows rows, bool clips, bool half_states,
         std::mt19937& random) {
  auto const type = rows == Rows::kFloat32 ? ValueType::kFloat32 : ValueType::kBFloat16;
  auto arrays = make_arrays(kind, dim, random);
  auto expected = arrays;
  std::normal_distribution<float> normal;
  std::vector<float> sums(size_t(kPlaces * dim));
  for (auto& value : sums) value = normal(random);
  std::vector<int32_t> slots(kPlaces, -1);
  for (int place = 0; place < kPlaces; ++place) {
    if (place % 5 != 2) slots[size_t(place)] = (place * 37) % kSlots;
    if (place % 11 == 3) sums[size_t(place * dim + place % dim)] = place % 2 ? NAN : INFINITY;
  }
  float hyper[kNumAnyHyper] = {clips ? 0.7f : 0.0f, clips ? 0.9f : 0.0f};
  float const own[kMaxHyper] = {0.05f, 0.01f, 0.5f, 0.9f, -0.5f, 1.0f, 0.25f, 1.0f, 0.0f, 0.0f};
  std::copy_n(own, kMaxHyper, hyper + kNumRowHyper);
  if (kind == OptimizerKind::kFtrl) hyper[kNumRowHyper + 5] = -0.5f;
  auto const optimizer = prepare_optimizer(kind, hyper, 3);

  auto const table = view_of(expected, kind, dim, rows, half_states);
  int skipped = 0;
  for (size_t place = 0; place < kPlaces; ++place) {
    if (slots[place] < 0) continue;
    cpu::RowUpdates one;
    one.count = 1;
    one.slots[0] = slots[place];
    one.gradients[0] = sums.data() + place * size_t(dim);
    skipped += cpu::update_by_any(table, optimizer, one);
  }

  auto const ref = view_of(arrays, kind, dim, rows, half_states);
  AnyCall call{};
  call.num_tables = 2;  // the first has no rows
  auto& second = call.tables[1];
  second.values = ref.values;
  std::copy_n(ref.states, kMaxStates, second.states);
  std::copy_n(ref.state_initial, kMaxStates, second.state_initial);
  second.counters = ref.counters;
  second.index = ref.rounds_stochastically != 0 ? ref.index : nullptr;
  second.slots = slots.data();
  second.sums = sums.data();
  second.capacity = kPlaces;
  second.dim = dim;
  second.value_type = type;
  second.optimizer = &optimizer;
  second.half_states = ref.half_states;
  second.skips_nonfinite = true;
  call.tables[0] = second;
  call.tables[0].capacity = 0;
  auto const blocks = ceil_div(kPlaces, any_rows_of_block(dim));
  auto const known = is_format<FloatVectors>(type, ref.values, dim);
  CHECK(launch_any(kind, known, blocks, call) == cudaSuccess);

  CHECK(arrays.counters[kNonfinite] == static_cast<uint64_t>(skipped));
  for (int s = 0; s < ref.num_states; ++s) {
    compare(arrays.states[s], expected.states[s]);
    compare_halves(arrays.half_states[s], expected.half_states[s]);
  }
  for (int s = ref.num_states - state_shape(kind).ints; s < ref.num_states; ++s) {
    CHECK(memcmp(arrays.states[s].data(), expected.states[s].data(), kSlots * 4) == 0);
  }
  if (type == ValueType::kFloat32) return compare(arrays.floats, expected.floats);
  compare_halves(arrays.halves, expected.halves);
}

}  // namespace

int main() {
  std::mt19937 random(1);
  for (int kind = 0; kind < static_cast<int>(OptimizerKind::kNumKinds); ++kind) {
    for (int const dim : {1, 3, 4, 16, 100, 128, 130, 256}) {
      for (auto const rows : {Rows::kFloat32, Rows::kNearest, Rows::kStochastic}) {
        for (auto const clips : {false, true}) {
          run(static_cast<OptimizerKind>(kind), dim, rows, clips, clips == (dim % 4 == 0), random);
        }
      }
    }
  }
}
