// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradient_runs.cc: groups the positions of a batch by the row that their gradients belong to.
#include "cpu/gradient_runs.h"

#include <algorithm>

#include "core/slot.h"
#include "cpu/feature_chunks.h"

namespace dynemb::cpu {
namespace {

constexpr int64_t kIdsPerPiece = 16384;
constexpr int64_t kIdsPerPartition = 8192;  // sorted within the second-level cache
constexpr int64_t kMaxPartitions = 1024;
constexpr int kRadixBits = 8;
constexpr int64_t kKeysAhead = 16;  // positions whose keys are on their way

// One stable pass of a radix sort by the byte at `shift`.
void radix_pass(Entry const* from, Entry const* end, Entry* to, int shift) {
  size_t place[1 << kRadixBits] = {};
  auto const digit = [shift](Entry const& e) { return (e.slot >> shift) & 0xffu; };
  for (auto const* e = from; e != end; ++e) ++place[digit(*e)];
  size_t sum = 0;
  for (auto& each : place) {
    auto const count = each;
    each = sum;
    sum += count;
  }
  for (auto const* e = from; e != end; ++e) to[place[digit(*e)]++] = *e;
}

}  // namespace

// The live positions of one stretch of a feature, counted and then copied by partition.
struct GradientRuns::Piece {
  FeatureChunk chunk;
  std::vector<int64_t> place;    // [num_partitions] count, then where the next entry goes
  std::vector<uint64_t> linear;  // [live positions] slot over all tables
  std::vector<uint32_t> item;    // [live positions]
  uint64_t lost = 0;
};

GradientRuns::GradientRuns(TableRef const* tables, int32_t num_tables, FeatureRef const* features,
                           int32_t num_features, bool counts_lost, ThreadPool const& pool)
    : tables_(tables), features_(features), counts_lost_(counts_lost) {
  first_slot_.assign(1, 0);
  for (int32_t t = 0; t < num_tables; ++t) {
    first_slot_.push_back(first_slot_.back() + tables[t].local_buckets * kBucketCapacity);
  }
  first_item_.assign(1, 0);
  for (int32_t f = 0; f < num_features; ++f) {
    first_item_.push_back(first_item_.back() + features[f].num_ids);
  }
  num_partitions_ = std::clamp(first_item_.back() / kIdsPerPartition, pool.num_threads * 4,
                               std::max(kMaxPartitions, pool.num_threads * 4));
  auto const slots = static_cast<uint64_t>(std::max<int64_t>(1, first_slot_.back()));
  auto const partitions = static_cast<uint64_t>(num_partitions_);
  slots_per_partition_ = (slots + partitions - 1) / partitions;

  std::vector<Piece> pieces;
  for (auto const& chunk : cut_ids(features, num_features, kIdsPerPiece)) {
    pieces.push_back({chunk, {}, {}, {}});
  }
  auto const num_pieces = static_cast<int64_t>(pieces.size());
  for_each_chunk(pool, num_pieces, [&](int64_t i) { collect(&pieces[size_t(i)]); });

  starts_.assign(size_t(num_partitions_) + 1, 0);
  int64_t total = 0;
  for (size_t p = 0; p < size_t(num_partitions_); ++p) {
    starts_[p] = total;
    for (auto& piece : pieces) {
      auto const count = piece.place[p];
      piece.place[p] = total;
      total += count;
    }
  }
  starts_.back() = total;
  entries_.resize(size_t(total));
  for_each_chunk(pool, num_pieces, [&](int64_t i) {
    auto& piece = pieces[size_t(i)];
    for (size_t e = 0; e < piece.linear.size(); ++e) {
      auto const partition = piece.linear[e] / slots_per_partition_;
      auto const slot = piece.linear[e] - partition * slots_per_partition_;
      entries_[size_t(piece.place[partition]++)] = {static_cast<uint32_t>(slot), piece.item[e]};
    }
  });
}

void GradientRuns::collect(Piece* piece) const {
  auto const& feature = features_[piece->chunk.feature];
  auto const& table = tables_[feature.table];
  auto const first_slot = static_cast<uint64_t>(first_slot_[size_t(feature.table)]);
  auto const first_item = first_item_[size_t(piece->chunk.feature)];
  piece->place.assign(size_t(num_partitions_), 0);
  piece->linear.reserve(size_t(piece->chunk.end - piece->chunk.begin));
  piece->item.reserve(size_t(piece->chunk.end - piece->chunk.begin));
  for (auto position = piece->chunk.begin; position < piece->chunk.end; ++position) {
    if (position + kKeysAhead < piece->chunk.end && feature.slots[position + kKeysAhead] >= 0) {
      __builtin_prefetch(key_at(table, feature.slots[position + kKeysAhead]));
    }
    auto const slot = feature.slots[position];
    if (slot < 0) continue;
    if (*key_at(table, slot) != load_key(feature.ids, feature.id_type, position)) {
      ++piece->lost;
      continue;
    }
    auto const linear = first_slot + static_cast<uint64_t>(slot);
    ++piece->place[linear / slots_per_partition_];
    piece->linear.push_back(linear);
    piece->item.push_back(static_cast<uint32_t>(first_item + position));
  }
  if (counts_lost_ && piece->lost > 0) fetch_add(table.counters + kLostUpdates, piece->lost);
}

void GradientRuns::sort(Entry* begin, Entry* end) const {
  thread_local std::vector<Entry> other;
  auto const count = static_cast<size_t>(end - begin);
  other.resize(count);
  auto* from = begin;
  auto* to = other.data();
  for (int shift = 0; shift < 32 && (slots_per_partition_ - 1) >> shift != 0; shift += kRadixBits) {
    radix_pass(from, from + count, to, shift);
    std::swap(from, to);
  }
  if (from != begin) std::copy(from, from + count, begin);
}

int32_t GradientRuns::table_of(int64_t linear) const {
  auto const after = std::upper_bound(first_slot_.begin(), first_slot_.end(), linear);
  return static_cast<int32_t>(after - first_slot_.begin()) - 1;
}

GradientRuns::Place GradientRuns::place_of(uint32_t item) const {
  auto const after = std::upper_bound(first_item_.begin(), first_item_.end(), int64_t{item});
  auto const feature = static_cast<int32_t>(after - first_item_.begin()) - 1;
  return {feature, int64_t{item} - first_item_[size_t(feature)]};
}

}  // namespace dynemb::cpu
