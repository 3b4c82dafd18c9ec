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

// Writes the exported rows of some buckets from a place of the results on; returns how many.
int64_t write_buckets(ExportArgs const& args, int64_t begin, int64_t end, int64_t to) {
  auto const first = to;
  for (auto index = begin; index < end; ++index) {
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
  return to - first;
}

// Moves results towards the first; both ranges may overlap.
void move_results(ExportArgs const& args, int64_t from, int64_t count, int64_t to) {
  if (from == to) return;
  std::copy_n(args.keys + from, count, args.keys + to);
  std::copy_n(args.scores + from, count, args.scores + to);
  std::copy_n(args.slots + from, count, args.slots + to);
}

void clear_results(ExportArgs const& args, int64_t begin, int64_t end) {
  std::fill(args.keys + begin, args.keys + end, kEmptyKey);
  std::fill(args.scores + begin, args.scores + end, kEmptyScore);
  std::fill(args.slots + begin, args.slots + end, -1);
}

}  // namespace

void export_batch(ExportArgs const& args, ThreadPool const& pool) {
  // What of the range is in the shard: buckets before and past it count as empty.
  auto const first = std::max(int64_t{*args.first_bucket}, int64_t{0});
  auto const end = std::min(*args.first_bucket + args.num_buckets, args.table.local_buckets);
  auto const live = std::max(end - first, int64_t{0});
  // Each chunk writes where its buckets would be if all of their slots were exported, so the
  // buckets are read once. The results then move together in the order of the chunks.
  std::vector<int64_t> found(size_t((live + kBucketsPerChunk - 1) / kBucketsPerChunk), 0);
  for_each_range(pool, live, kBucketsPerChunk, [&](int64_t begin, int64_t end) {
    found[size_t(begin / kBucketsPerChunk)] =
        write_buckets(args, first + begin, first + end, begin * kBucketCapacity);
  });
  int64_t total = 0;
  for (size_t chunk = 0; chunk < found.size(); ++chunk) {
    auto const from = int64_t(chunk) * kBucketsPerChunk * kBucketCapacity;
    move_results(args, from, found[chunk], total);
    total += found[chunk];
  }
  *args.count = static_cast<int32_t>(total);
  auto const room = args.num_buckets * kBucketCapacity;
  for_each_range(
      pool, room - total, kBucketsPerChunk * kBucketCapacity,
      [&](int64_t begin, int64_t end) { clear_results(args, total + begin, total + end); });
}

}  // namespace dynemb::cpu
