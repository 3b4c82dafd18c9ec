// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/table/rule.cc: a rule counts rows or removes them, and counts of uses decay.
#include "core/rule.h"

#include <algorithm>
#include <array>

#include "core/vacate.h"
#include "cpu/table_ops.h"

namespace dynemb::cpu {
namespace {

constexpr int64_t kBucketsPerChunk = 64;

// Calls function(entry, slot) for the slots of some buckets.
template <class Function>
void for_each_slot(TableRef const& table, int64_t begin, int64_t end, Function const& function) {
  for (auto bucket = begin; bucket < end; ++bucket) {
    auto* const entries = bucket_at(table, bucket).entries;
    auto const slot = bucket * kBucketCapacity;
    for (int i = 0; i < kBucketCapacity; ++i) function(entries[i], slot + i);
  }
}

}  // namespace

void count_rule(RuleArgs const& args, ThreadPool const& pool) {
  RuleBins const bins(args);
  std::fill_n(args.result, 2 * kRankBins, 0u);
  auto const buckets = args.table.local_buckets;
  for_each_range(pool, buckets, kBucketsPerChunk, [&](int64_t begin, int64_t end) {
    std::array<uint32_t, size_t{2} * kRankBins> counts{};
    for_each_slot(args.table, begin, end, [&](Entry const& entry, int64_t slot) {
      auto const bin = bins.of(args, entry, slot);
      if (bin >= 0) ++counts[static_cast<size_t>(bin)];
    });
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] > 0) __atomic_fetch_add(args.result + i, counts[i], __ATOMIC_RELAXED);
    }
  });
}

void erase_rule(RuleArgs const& args, ThreadPool const& pool) {
  RuleErasure const erasure(args);
  auto const buckets = args.table.local_buckets;
  *args.result = 0;
  for_each_range(pool, buckets, kBucketsPerChunk, [&](int64_t begin, int64_t end) {
    uint32_t removed = 0;
    for_each_slot(args.table, begin, end, [&](Entry const& entry, int64_t slot) {
      if (!erasure.removes(args, entry, slot)) return;
      vacate(args.table, args.removals, static_cast<int32_t>(slot));
      ++removed;
    });
    __atomic_fetch_add(args.result, removed, __ATOMIC_RELAXED);
    count_left(args.table, kRemovedByRule, removed);
  });
}

void decay(DecayArgs const& args, ThreadPool const& pool) {
  auto const buckets = args.table.local_buckets;
  for_each_range(pool, buckets, kBucketsPerChunk, [&](int64_t begin, int64_t end) {
    for_each_slot(args.table, begin, end, [&](Entry& entry, int64_t /*slot*/) {
      entry.score = decayed_score(entry.score, *args.factor);
    });
  });
}

}  // namespace dynemb::cpu
