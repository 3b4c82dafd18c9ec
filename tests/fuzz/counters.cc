// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/fuzz/counters.cc: numbers that are added to counters of tables.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/table_ref.h"
#include "tests/fuzz/calls.h"
#include "tests/fuzz/data.h"

namespace dynemb::fuzz {

Call make_add_to_counters(World&, Random& random) {
  Call call;
  auto const count = random.of<int64_t>({0, 1, 3, 40});
  Attribute attribute{"places", true, {}, {}, false};
  int64_t arrays = 0;
  std::vector<uint32_t> numbers;
  for (int64_t i = 0; i < count; ++i) {
    numbers.push_back(static_cast<uint32_t>(random.hostile()));
    call.operand(kU32, {1}).data<uint32_t>()[0] = numbers.back();
    auto const array = random.below(std::min<int64_t>(arrays + 1, 5));
    arrays = std::max(arrays, array + 1);
    attribute.integers.push_back(array);
    attribute.integers.push_back(0);
  }
  std::vector<Array> counters;
  std::vector<std::vector<uint64_t>> expected;
  for (int64_t n = 0; n < arrays; ++n) {
    counters.emplace_back(kU32, std::vector<int64_t>{1 + random.below(3), kNumCounters, 2});
    auto const size = counters.back().dims[0] * kNumCounters;
    expected.emplace_back();
    for (int64_t i = 0; i < size; ++i) {
      expected.back().push_back(static_cast<uint64_t>(random.hostile()));
      counters.back().data<uint64_t>()[i] = expected.back().back();
    }
    call.aliased(counters.back());
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    auto& of_array = expected[size_t(attribute.integers[2 * i])];
    auto const place = random.below(static_cast<int64_t>(of_array.size()));
    attribute.integers[2 * i + 1] = place;
    of_array[size_t(place)] += numbers[i];
  }
  call.attributes = {attribute};
  finish(call);
  call.check = [counters, expected] {
    for (size_t n = 0; n < counters.size(); ++n) {
      expect(std::equal(expected[n].begin(), expected[n].end(), counters[n].data<uint64_t>()),
             "counters");
    }
  };
  return call;
}

}  // namespace dynemb::fuzz
