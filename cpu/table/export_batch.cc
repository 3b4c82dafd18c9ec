// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/table/export_batch.cc: the live rows of a range of buckets, compacted in order.
#include <algorithm>
#include <vector>

#include "core/table_ref.h"
#include "cpu/table_ops.h"

namespace dynemb::cpu {
namespace {

constexpr int64_t kBucketsPerChunk = 64;

bool is_exported(uint64_t score, uint64_t min_score) {
  return score != kEmptyScore && score >= min_score;
}

int64_t count_bucket(Bucket const& bucket, uint64_t min_score) {
  int64_t count = 0;
  for (int i = 0; i < kBucketCapacity; ++i)
    count += is_exported(bucket.entries[i].score, min_score);
  return count;
}

void write_bucket(ExportArgs const& args, int64_t index, int64_t to) {
  auto const bucket = bucket_at(args.table, index);
  for (int i = 0; i < kBucketCapacity; ++i) {
    auto const& entry = bucket.entries[i];
    if (!is_exported(entry.score, *args.min_score)) continue;
    args.keys[to] = entry.key;
    args.scores[to] = entry.score;
    args.slots[to] = static_cast<int32_t>(index * kBucketCapacity + i);
    ++to;
  }
}

}  // namespace

void export_batch(ExportArgs const& args, ThreadPool const& pool) {
  // What of the range is in the shard: buckets before and past it count as empty.
  auto const first = std::max(int64_t{*args.first_bucket}, int64_t{0});
  auto const end = std::min(*args.first_bucket + args.num_buckets, args.table.local_buckets);
  auto const live = std::max(end - first, int64_t{0});
  std::vector<int64_t> start(size_t(live) + 1, 0);
  for_each_range(pool, live, kBucketsPerChunk, [&](int64_t begin, int64_t end) {
    for (auto b = begin; b < end; ++b) {
      start[size_t(b) + 1] = count_bucket(bucket_at(args.table, first + b), *args.min_score);
    }
  });
  for (size_t b = 1; b < start.size(); ++b) start[b] += start[b - 1];
  auto const total = start.back();
  for_each_range(pool, live, kBucketsPerChunk, [&](int64_t begin, int64_t end) {
    for (auto b = begin; b < end; ++b) write_bucket(args, first + b, start[size_t(b)]);
  });
  *args.count = static_cast<int32_t>(total);
  for (auto i = total; i < args.num_buckets * kBucketCapacity; ++i) {
    args.keys[i] = kEmptyKey;
    args.scores[i] = kEmptyScore;
    args.slots[i] = -1;
  }
}

}  // namespace dynemb::cpu
