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

constexpr int64_t kBucketsPerChunk = 256;

// Calls function(entry, slot) for the slots of a bucket.
template <class Function>
void for_each_slot(TableRef const& table, int64_t bucket, Function const& function) {
  auto* const entries = bucket_at(table, bucket).entries;
  auto const slot = bucket * kBucketCapacity;
  for (int i = 0; i < kBucketCapacity; ++i) function(entries[i], slot + i);
}

// Visits the slots of some buckets in the same way.
template <class Function>
void for_each_slot(TableRef const& table, int64_t begin, int64_t end, Function const& function) {
  for (auto bucket = begin; bucket < end; ++bucket) for_each_slot(table, bucket, function);
}

void set_bits(uint32_t* words, uint64_t bits) {
  __atomic_fetch_or(words, static_cast<uint32_t>(bits), __ATOMIC_RELAXED);
  __atomic_fetch_or(words + 1, static_cast<uint32_t>(bits >> 32), __ATOMIC_RELAXED);
}

}  // namespace

void count_rule(RuleArgs const& args, ThreadPool const& pool) {
  RuleBins const bins(args);
  std::fill_n(args.result, kNumCountWords, 0u);
  auto const buckets = bins.buckets(args.table);
  for_each_range(pool, buckets.count, kBucketsPerChunk, [&](int64_t begin, int64_t end) {
    std::array<uint32_t, size_t{2} * kRankBins> counts{};
    uint64_t any_one = 0, any_zero = 0;
    for (auto i = begin; i < end; ++i) {
      auto const bucket = (buckets.first + i) % args.table.local_buckets;
      for_each_slot(args.table, bucket, [&](Entry const& entry, int64_t slot) {
        auto const place = bins.of(args, entry, slot);
        if (place.bin < 0) return;
        ++counts[static_cast<size_t>(place.bin)];
        any_one |= place.score;
        any_zero |= ~place.score;
      });
    }
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] > 0) __atomic_fetch_add(args.result + i, counts[i], __ATOMIC_RELAXED);
    }
    set_bits(args.result + kAnyOneWord, any_one);
    set_bits(args.result + kAnyZeroWord, any_zero);
  });
}

void erase_rule(RuleArgs const& args, ThreadPool const& pool) {
  RuleErasure const erasure(args);
  auto const buckets = args.table.local_buckets;
  *args.result = 0;
  if (erasure.removes_none()) return;
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
