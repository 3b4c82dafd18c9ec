// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/route/route.cc: the distinct ids of a batch, numbered. A thread sorts the ids of whole
// tables.
#include "core/route.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "cpu/loops/buffer.h"
#include "cpu/table_ops.h"

namespace dynemb::cpu {
namespace {

// Ids are sorted by the upper half of the hash, in three digits. What is left out makes a
// difference for one pair of ids in billions: such ties are found, and sorted by all bits.
constexpr int kDigitBits = 11;
constexpr int kPasses = 3;
constexpr size_t kDigits = size_t{1} << kDigitBits;
constexpr int64_t kSmallPart = 1024;  // below, a sort by comparisons is faster

struct Entry {
  uint64_t hash;
  int32_t position;
};

bool by_hash_and_position(Entry const& a, Entry const& b) {
  return a.hash != b.hash ? a.hash < b.hash : a.position < b.position;
}

uint32_t upper_half(Entry const& entry) { return static_cast<uint32_t>(entry.hash >> 32); }

size_t digit_of(Entry const& entry, int pass) {
  return upper_half(entry) >> (pass * kDigitBits) & (kDigits - 1);
}

// How many entries have which digit; then where they go.
using Digits = std::array<std::array<uint32_t, kDigits>, kPasses>;

// What becomes of the ids of one part.
struct PartRun {
  RoutePart part;
  StartsRange starts;
  int64_t begin;   // of its positions, and of its entries
  Entry* entries;  // in order, behind them there is room for padding
  Entry* spare;    //
  int64_t num_entries;
  int32_t num_distinct;
  int32_t first_number;
};

// Padding has its number at once.
void load_entries(RouteArgs const& args, PartRun& run, Entry* to) {
  auto* next = to;
  for (auto i = run.begin; i < run.begin + run.part.size; ++i) {
    if (is_padding(args.ids[i])) {
      args.unique_of[i] = static_cast<int32_t>(args.num_ids);
    } else {
      *next++ = {hash_key(args.ids[i], run.part.hash), static_cast<int32_t>(i)};
    }
  }
  run.num_entries = next - to;
}

void count_digits(Entry const* entries, int64_t count, Digits& digits) {
  for (auto& of_pass : digits) of_pass.fill(0);
  for (int64_t i = 0; i < count; ++i) {
    for (int pass = 0; pass < kPasses; ++pass) ++digits[size_t(pass)][digit_of(entries[i], pass)];
  }
  for (auto& of_pass : digits) {
    std::exclusive_scan(of_pass.begin(), of_pass.end(), of_pass.begin(), 0u);
  }
}

// From spare to entries, in an odd number of passes.
void sort_by_upper_half(PartRun const& run) {
  static_assert(kPasses % 2 == 1);
  thread_local Digits digits;
  count_digits(run.spare, run.num_entries, digits);
  auto *from = run.spare, *to = run.entries;
  for (int pass = 0; pass < kPasses; ++pass) {
    auto& places = digits[size_t(pass)];
    for (int64_t i = 0; i < run.num_entries; ++i) to[places[digit_of(from[i], pass)]++] = from[i];
    std::swap(from, to);
  }
}

// Brings entries in order that differ in the lower half of the hash only.
void sort_ties(PartRun const& run) {
  auto* const end = run.entries + run.num_entries;
  for (auto* entry = run.entries; entry < end;) {
    auto* next = entry + 1;
    auto is_mixed = false;
    for (; next < end && upper_half(*next) == upper_half(*entry); ++next) {
      is_mixed |= next->hash != entry->hash;
    }
    if (is_mixed) std::sort(entry, next, by_hash_and_position);
    entry = next;
  }
}

void sort_part(RouteArgs const& args, PartRun& run) {
  if (run.part.size < kSmallPart) {
    load_entries(args, run, run.entries);
    std::sort(run.entries, run.entries + run.num_entries, by_hash_and_position);
  } else {
    load_entries(args, run, run.spare);
    sort_by_upper_half(run);
    sort_ties(run);
  }
  run.num_distinct = 0;
  for (int64_t i = 0; i < run.num_entries; ++i) {
    run.num_distinct += i == 0 || run.entries[i].hash != run.entries[i - 1].hash ? 1 : 0;
  }
}

void number_part(RouteArgs const& args, PartRun const& run) {
  auto number = run.first_number - 1;
  auto segment = run.starts.begin;  // the next without a start
  for (int64_t i = 0; i < run.num_entries; ++i) {
    auto const& [hash, position] = run.entries[i];
    if (i == 0 || hash != run.entries[i - 1].hash) {
      args.first[++number] = position;
      auto const own = run.part.first_segment + owner_of(hash, run.part.owners);
      while (segment <= own) args.starts[segment++] = number;
    }
    args.unique_of[position] = number;
  }
  std::fill(args.starts + segment, args.starts + run.starts.end, number + 1);
}

void write_order(RouteArgs const& args, PartRun const& run) {
  auto* next = args.order + run.begin;
  for (int64_t i = 0; i < run.num_entries; ++i) *next++ = run.entries[i].position;
  for (auto i = run.begin; i < run.begin + run.part.size; ++i) {
    if (is_padding(args.ids[i])) *next++ = static_cast<int32_t>(i);
  }
}

}  // namespace

void route(RouteArgs const& args, ThreadPool const& pool) {
  Buffer<Entry> entries(size_t(args.num_ids)), spare(size_t(args.num_ids));
  std::vector<PartRun> runs;
  int64_t begin = 0;
  for (int32_t p = 0; p < args.num_parts; ++p) {
    auto const& part = args.parts[p];
    if (part.size == 0) continue;
    runs.push_back({part, starts_of_part(args, p), begin, entries.data() + begin,
                    spare.data() + begin, 0, 0, 0});
    begin += part.size;
  }
  auto const num_runs = static_cast<int64_t>(runs.size());
  for_each_chunk(pool, num_runs, [&](int64_t r) { sort_part(args, runs[size_t(r)]); });
  int32_t total = 0;
  for (auto& run : runs) {
    run.first_number = total;
    total += run.num_distinct;
  }
  for_each_chunk(pool, num_runs, [&](int64_t r) {
    number_part(args, runs[size_t(r)]);
    if (args.order != nullptr) write_order(args, runs[size_t(r)]);
  });
  std::fill(args.first + total, args.first + args.num_ids, static_cast<int32_t>(args.num_ids));
  if (runs.empty()) std::fill_n(args.starts, args.num_segments + 1, 0);
}

}  // namespace dynemb::cpu
