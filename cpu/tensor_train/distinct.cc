// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tensor_train/distinct.cc: the distinct numbers of a batch. A radix sort, each pass of it by
// all threads: they count the digits of their parts, then each writes to places of its own.
#include "core/distinct.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cpu/loops/buffer.h"
#include "cpu/table_ops.h"

namespace dynemb::cpu {
namespace {

constexpr int kDigitBits = 11;
constexpr size_t kDigits = size_t{1} << kDigitBits;
constexpr int64_t kLeastItems = 1 << 15;  // of a part
constexpr int64_t kMostParts = 16;

struct Item {
  uint32_t key;
  int32_t position;
};

// The items of a batch, divided among threads: as many parts as follow from its size alone.
struct Parts {
  int64_t num_items;
  int64_t count;

  explicit Parts(int64_t items)
      : num_items(items), count(std::clamp<int64_t>(items / kLeastItems, 1, kMostParts)) {}

  int64_t begin(int64_t part) const { return num_items * part / count; }
};

size_t digit_of(Item const& item, int shift) { return item.key >> shift & (kDigits - 1); }

// Calls function(part, i) for every item, in order within a part.
template <class Function>
void for_each_item(ThreadPool const& pool, Parts const& parts, Function const& function) {
  for_each_chunk(pool, parts.count, [&](int64_t part) {
    for (auto i = parts.begin(part); i < parts.begin(part + 1); ++i) function(part, i);
  });
}

void sort_by_digit(Item const* from, Item* to, int shift, Parts const& parts,
                   ThreadPool const& pool) {
  std::vector<uint32_t> places(kDigits * size_t(parts.count));
  auto const place_of = [&](int64_t part, Item const& item) -> uint32_t& {
    return places[size_t(part) * kDigits + digit_of(item, shift)];
  };
  for_each_item(pool, parts, [&](int64_t part, int64_t i) { ++place_of(part, from[i]); });
  uint32_t next = 0;
  for (size_t digit = 0; digit < kDigits; ++digit) {
    for (auto part = digit; part < places.size(); part += kDigits) {
      next += std::exchange(places[part], next);
    }
  }
  for_each_item(pool, parts,
                [&](int64_t part, int64_t i) { to[place_of(part, from[i])++] = from[i]; });
}

// Keys are the numbers below the limit, and the one that is last.
int passes_of(uint32_t limit) {
  int bits = 0;
  while (bits < 32 && limit >> bits != 0) ++bits;  // so many bits of kNoNumber are no number
  return std::max(1, (bits + kDigitBits - 1) / kDigitBits);
}

// Writes everything but zeros behind the last value.
class Writer {
 public:
  Writer(DistinctArgs const& args, Item const* items)
      : args_(args), items_(items), parts_(parts_of(args)) {}

  bool is_first(int64_t i) const {
    return items_[i].key != kNoNumber && (i == 0 || items_[i].key != items_[i - 1].key);
  }

  // `before`: values before place i.
  void write(int64_t i, int32_t before) const {
    auto const [key, position] = items_[i];
    auto const first = is_first(i);
    auto const rank = key == kNoNumber ? -1 : before - (first ? 0 : 1);
    args_.positions[i] = position;
    args_.ranks[i] = args_.inverse[position] = rank;
    if (first) {
      args_.values[before] = key;
      args_.of_suffix[before] = parts_.suffix_of(key);
    }
    begin_prefixes(prefixes_at(parts_, i == 0, i == 0 ? 0 : items_[i - 1].key, key), before);
    if (i + 1 == args_.num_ids) {
      begin_prefixes(prefixes_behind(parts_, key), before + (first ? 1 : 0));
    }
  }

 private:
  void begin_prefixes(PrefixRange range, int32_t start) const {
    for (auto prefix = range.begin; prefix < range.end; ++prefix) args_.starts[prefix] = start;
  }

  DistinctArgs const& args_;
  Item const* items_;
  NumberParts parts_;
};

}  // namespace

void distinct(DistinctArgs const& args, ThreadPool const& pool) {
  auto const n = args.num_ids;
  if (n == 0) {
    args.count[0] = 0;
    std::fill_n(args.starts, args.num_prefixes + 1, 0);
    return;
  }
  Parts const parts(n);
  Buffer<Item> buffers[2] = {Buffer<Item>(size_t(n)), Buffer<Item>(size_t(n))};
  auto *from = buffers[0].data(), *to = buffers[1].data();
  auto const numbers = parts_of(args);
  for_each_item(pool, parts, [&](int64_t, int64_t i) {
    from[i] = {numbers.key_of(args.numbers[i]), static_cast<int32_t>(i)};
  });
  for (int pass = 0; pass < passes_of(args.limit); ++pass) {
    sort_by_digit(from, to, pass * kDigitBits, parts, pool);
    std::swap(from, to);
  }
  Writer const writer(args, from);
  std::vector<int32_t> before(size_t(parts.count) + 1);
  for_each_item(pool, parts, [&](int64_t part, int64_t i) {
    before[size_t(part) + 1] += writer.is_first(i) ? 1 : 0;
  });
  for (size_t part = 0; part < size_t(parts.count); ++part) before[part + 1] += before[part];
  auto const count = before.back();
  for_each_item(pool, parts, [&](int64_t part, int64_t i) {
    auto& next = before[size_t(part)];
    writer.write(i, next);
    next += writer.is_first(i) ? 1 : 0;
  });
  args.count[0] = count;
  std::fill(args.values + count, args.values + n, 0u);
  std::fill(args.of_suffix + count, args.of_suffix + n, -1);
}

}  // namespace dynemb::cpu
