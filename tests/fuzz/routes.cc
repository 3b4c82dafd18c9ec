// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <map>

#include "tests/fuzz/data.h"

namespace dynemb::fuzz {

namespace {

Call make_any_route(Random& random, bool is_ordered) {
  Call call;
  Attribute parts{"parts", true, {}, {}, false};
  int64_t n = 0, segment = 0;
  for (auto count = random.below(5); count > 0; --count) {
    auto const size = batch_size(random), owners = random.between(1, 9);
    auto const begin = segment + random.below(3);
    auto const hash_seed = static_cast<int64_t>(random.one_in(2) ? 0 : random.bits());
    auto const of_each = random.one_in(2) ? int64_t{1} : random.between(1, 9);
    auto const buckets = random.one_in(2) ? 0 : random.between(1, owners * of_each);
    parts.integers.insert(parts.integers.end(), {size, begin, owners, hash_seed, buckets, of_each});
    segment = begin + owners;
    n += size;
  }
  segment += random.below(3);
  auto const ids = call.operand(kU32, {n, 2});
  auto const range = random.of<int64_t>({3, 100, int64_t{1} << 40});
  for (int64_t i = 0; i < n; ++i) {
    ids.data<int64_t>()[i] = random.one_in(9) ? random.between(-5, 0) : random.below(range);
  }
  auto const unique_of = call.result(kS32, {n}), first = call.result(kS32, {n});
  auto const starts = call.result(kS32, {segment + 1});
  auto const order = is_ordered ? call.result(kS32, {n}) : starts;
  call.attributes = {parts};
  finish(call);
  call.check = [parts, ids, unique_of, first, starts, n, segment, order, is_ordered] {
    for (int64_t i = 1; is_ordered && i < n; ++i) {
      auto const* const positions = order.data<int32_t>() + i;
      auto const* const numbers = unique_of.data<int32_t>();
      auto const is_padding = numbers[positions[-1]] == n;
      expect(is_padding || numbers[positions[-1]] <= numbers[positions[0]], "an order");
    }
    std::map<std::pair<size_t, uint64_t>, int32_t> number;
    size_t part = 0;
    int64_t end = parts.integers.empty() ? 0 : parts.integers[0];
    for (int64_t i = 0; i < n; ++i) {
      while (i >= end) end += parts.integers[++part * kNumPartFields];
      auto const key = ids.data<uint64_t>()[i];
      auto const own = unique_of.data<int32_t>()[i];
      if (is_padding(key)) {
        expect(own == n, "the number of padding");
        continue;
      }
      expect(own >= 0 && own < n, "a number that there is not");
      auto const [found, is_first] = number.insert({{part, key}, own});
      expect(found->second == own, "two numbers for one id");
      expect(!is_first || first.data<int32_t>()[own] == i, "where an id first occurs");
    }
    expect(starts.data<int32_t>()[segment] == static_cast<int32_t>(number.size()), "ids");
  };
  return call;
}

// The lengths of one feature: adds its operand and results to the call; returns its check.
struct BagsOfFeature {
  int64_t capacity;
  std::vector<__int128> lengths;
  Array offsets, malformed;

  BagsOfFeature(Call& call, Random& random) {
    auto const dtype = random.of({kS32, kU32, XLA_FFI_DataType_S64, XLA_FFI_DataType_U64});
    auto const bags = batch_size(random);
    auto const operand = call.operand(dtype, {bags});
    auto const hostile = random.one_in(2);
    for (int64_t b = 0; b < bags; ++b) {
      auto const length = hostile && random.one_in(4) ? random.hostile() : random.below(6);
      if (Array::width(dtype) == 8) {
        operand.data<int64_t>()[b] = length;
        lengths.push_back(dtype == XLA_FFI_DataType_S64 ? __int128{length}
                                                        : __int128{static_cast<uint64_t>(length)});
      } else {
        operand.data<int32_t>()[b] = static_cast<int32_t>(length);
        lengths.push_back(dtype == kS32 ? __int128{static_cast<int32_t>(length)}
                                        : __int128{static_cast<uint32_t>(length)});
      }
    }
    capacity = random.of<int64_t>({0, 1, bags * 2, bags * 6, INT32_MAX - 1});
    offsets = call.result(kS32, {bags + 1});
    malformed = call.result(kU32, {1});
  }

  void check() const {
    __int128 sum = 0;
    uint32_t cut = 0;
    expect(offsets.data<int32_t>()[0] == 0, "the first offset");
    for (size_t b = 0; b < lengths.size(); ++b) {
      auto const end = sum + std::max(lengths[b], __int128{0});
      cut += lengths[b] < 0 || end > capacity ? 1 : 0;
      sum = std::min(end, __int128{capacity});
      expect(offsets.data<int32_t>()[b + 1] == sum, "an offset");
    }
    expect(malformed.data<uint32_t>()[0] == cut, "bags that were cut");
  }
};

}  // namespace

Call make_route(World&, Random& random) { return make_any_route(random, false); }

Call make_ordered_route(World&, Random& random) { return make_any_route(random, true); }

Call make_offsets(World&, Random& random) {
  Call call;
  BagsOfFeature const bags(call, random);
  scalar(call, "capacity", bags.capacity);
  finish(call);
  call.check = [bags] { bags.check(); };
  return call;
}

Call make_offsets_of_features(World&, Random& random) {
  Call call;
  std::vector<BagsOfFeature> features;
  std::vector<int64_t> capacities;
  for (auto count = random.of({0, 1, 2, 3, 40}); count > 0; --count) {
    features.emplace_back(call, random);
    capacities.push_back(features.back().capacity);
  }
  Attribute attribute{"capacities", true, {}, {}, false};
  attribute.integers = capacities;
  call.attributes = {attribute};
  finish(call);
  call.check = [features] {
    for (auto const& each : features) each.check();
  };
  return call;
}

}  // namespace dynemb::fuzz
