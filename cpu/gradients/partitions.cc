// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/partitions.cc: deals the positions of a batch to partitions.
#include "cpu/gradients/partitions.h"

#include <algorithm>

#include "core/slot.h"
#include "cpu/gradients/bag_cursor.h"

namespace dynemb::cpu {
namespace {

constexpr int64_t kIdsPerPiece = 8192;
constexpr int64_t kIdsPerPartition = 256;  // on average, at least
constexpr int kLeastShift = 15;            // an array for the slots of a partition has 128 KiB,
constexpr int kMostShift = 18;             // 1 MiB where the batch is small for its table
constexpr int64_t kMostPartitions = 4096;  // or more, where tables have more than 2^30 slots
constexpr int64_t kKeysAhead = 64;         // positions whose keys are prefetched
// The ends of a piece begin at a multiple of so many. Were those of two pieces in one line, or in
// two that are fetched together, each count would move the line to the other core.
constexpr int64_t kEndsApart = 32;

// Of partitions there are enough for these, also where a table is one of fewer groups.
int64_t room_for_slots(TableRef const& table) { return table.local_buckets * kBucketCapacity; }

int choose_shift(Gradients const& gradients, int64_t num_ids, int64_t num_threads) {
  int64_t slots = 0;
  for (auto t = gradients.first_table; t < gradients.end_table; ++t) {
    slots += room_for_slots(gradients.tables[t]);
  }
  auto const wanted = std::max(num_threads * 4, num_ids / kIdsPerPartition);
  auto shift = kLeastShift;
  while (shift < kMostShift && slots >> shift > wanted) ++shift;
  while (slots >> shift > kMostPartitions) ++shift;
  return shift;
}

// Calls put(position, slot, bag) for the positions that have a slot below the limit; returns how
// many have one above it.
template <class Put>
uint64_t for_each_live(FeatureRef const& feature, uint32_t limit, int64_t begin, int64_t end,
                       Put const& put) {
  auto const* const slots = feature.slots;
  uint64_t foreign = 0;
  auto const look_at = [&](int64_t position, auto const& bag_at) {
    auto const slot = slots[position];
    if (is_live(slot, limit)) return put(position, slot, bag_at(position));
    foreign += is_foreign(slot, limit) ? 1 : 0;
  };
  if (feature.bag_size == 1) {
    auto const itself = [](int64_t position) { return position; };
    for (auto position = begin; position < end; ++position) look_at(position, itself);
    return foreign;
  }
  if (limit == 0) {  // no slot is live; there may be no bag to begin with
    auto const none = [](int64_t) { return int64_t{0}; };
    for (auto position = begin; position < end; ++position) look_at(position, none);
    return foreign;
  }
  BagCursor bags(feature, begin);
  auto const bag_at = [&](int64_t position) { return bags.bag_at(position); };
  for (auto position = begin; position < end; ++position) look_at(position, bag_at);
  return foreign;
}

// The same, but for slots that hold another id by now, which are counted, too.
template <class Put>
uint64_t for_each_kept(TableRef const& table, FeatureRef const& feature, uint32_t limit,
                       int64_t begin, int64_t end, Put const& put) {
  auto ahead = begin;
  uint64_t lost = 0;
  auto const keep = [&](int64_t position, int32_t slot, int64_t bag) {
    for (auto const limit = std::min(position + kKeysAhead, end); ahead < limit; ++ahead) {
      __builtin_prefetch(key_at(table, std::max(feature.slots[ahead], 0)));
    }
    auto const is_kept = *key_at(table, slot) == load_key(feature.ids, feature.id_type, position);
    is_kept ? put(position, slot, bag) : static_cast<void>(++lost);
  };
  auto const foreign = for_each_live(feature, limit, begin, end, keep);
  return lost + foreign;
}

}  // namespace

PartitionLayout::PartitionLayout(Gradients const& gradients, int64_t num_threads)
    : first_partition(1, 0),
      pieces(size_t(gradients.end_table - gradients.first_table)),
      num_entries(0),
      num_ends(0) {
  auto const is_here = [&](int32_t f) {
    auto const table = gradients.features[f].table;
    return gradients.first_table <= table && table < gradients.end_table;
  };
  for (int32_t f = 0; f < gradients.num_features; ++f) {
    if (is_here(f)) num_entries += gradients.features[f].num_ids;
  }
  shift = choose_shift(gradients, num_entries, num_threads);
  for (auto t = gradients.first_table; t < gradients.end_table; ++t) {
    auto const partitions = ((room_for_slots(gradients.tables[t]) - 1) >> shift) + 1;
    first_partition.push_back(first_partition.back() + partitions);
  }
  int64_t entry = 0;
  for (int32_t f = 0; f < gradients.num_features; ++f) {
    if (!is_here(f)) continue;
    auto const place = size_t(gradients.features[f].table - gradients.first_table);
    for (auto const& chunk : cut_ids(gradients.features, f, kIdsPerPiece)) {
      pieces[place].push_back({chunk, entry, num_ends});
      entry += chunk.end - chunk.begin;
      auto const partitions = first_partition[place + 1] - first_partition[place];
      num_ends += (partitions + kEndsApart - 1) / kEndsApart * kEndsApart;
    }
  }
}

GradientPartitions::GradientPartitions(Gradients const& gradients, int64_t num_threads)
    : gradients_(gradients),
      layout_(gradients, num_threads),
      ends_(size_t(layout_.num_ends)),
      entries_(size_t(layout_.num_entries)),
      positions_(size_t(gradients.keeps_positions ? layout_.num_entries : 0)) {
  for (auto const& pieces : layout_.pieces) {
    for (auto const& piece : pieces) pieces_.push_back(&piece);
  }
}

void GradientPartitions::deal(int64_t piece) {
  keeps_positions() ? deal<true>(*pieces_[size_t(piece)]) : deal<false>(*pieces_[size_t(piece)]);
}

template <bool keeps_positions>
void GradientPartitions::deal(PartitionLayout::Piece const& piece) {
  thread_local std::vector<DealtEntry> live(kIdsPerPiece);
  thread_local std::vector<uint32_t> live_positions(kIdsPerPiece);
  size_t num_live = 0;
  auto const& [f, begin, end, first_bag, end_bag] = piece.chunk;
  auto const& feature = gradients_.features[f];
  auto const& table = gradients_.tables[feature.table];
  auto const first_partition =
      layout_.first_partition.begin() + (feature.table - gradients_.first_table);
  auto* const places = ends_.data() + piece.first_end;
  auto const partitions = first_partition[1] - first_partition[0];
  std::fill_n(places, partitions, 0u);
  auto* const some = live.data();
  auto* const some_positions = live_positions.data();
  auto const put = [&](int64_t position, int32_t slot, int64_t bag) {
    ++places[slot >> layout_.shift];
    if constexpr (keeps_positions) some_positions[num_live] = static_cast<uint32_t>(position);
    some[num_live++] = {static_cast<uint32_t>(slot), static_cast<uint32_t>(bag)};
  };
  auto const checks = table.index != nullptr && !keeps_slots(table);  // groups have no ids
  auto const limit = slot_limit(table, feature, gradients_.stamp_of(feature.table));
  auto const lost = checks ? for_each_kept(table, feature, limit, begin, end, put)
                           : for_each_live(feature, limit, begin, end, put);
  if (gradients_.counts_lost && lost > 0) fetch_add(table.counters + kLostUpdates, lost);

  uint32_t sum = 0;  // from counts to the first places; dealing turns these into ends
  for (int64_t p = 0; p < partitions; ++p) {
    auto const count = places[p];
    places[p] = sum;
    sum += count;
  }
  auto* const entries = entries_.data() + piece.first_entry;
  auto* const positions = keeps_positions ? positions_.data() + piece.first_entry : nullptr;
  auto const within = static_cast<uint32_t>(slots_per_partition() - 1);
  for (size_t i = 0; i < num_live; ++i) {
    auto const place = places[some[i].slot >> layout_.shift]++;
    entries[place] = {some[i].slot & within, some[i].bag};
    if constexpr (keeps_positions) positions[place] = some_positions[i];
  }
}

int32_t GradientPartitions::place_of(int64_t partition) const {
  auto const& first = layout_.first_partition;
  auto const after = std::upper_bound(first.begin(), first.end(), partition);
  return static_cast<int32_t>(after - first.begin()) - 1;
}

}  // namespace dynemb::cpu
