// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/partitions.h: deals the positions of a batch to partitions, each of some
// neighbouring slots of one table. Partitions share no row, so threads take them one by one.
//
// A partition has 2^15 slots where the batch is large, so that an array with an element for each of
// them stays in the second-level cache: cpu/gradients/partition_rows.h needs no sort to bring equal
// slots together.
#pragma once

#include <cstdint>
#include <vector>

#include "core/args.h"
#include "cpu/loops/buffer.h"
#include "cpu/loops/feature_chunks.h"
#include "cpu/loops/thread_pool.h"

namespace dynemb::cpu {

// The tables and features of an update, and what to do with gradients of rows that were evicted.
struct Gradients {
  TableRef const* tables;
  int32_t first_table, end_table;  // features of others are passed over
  FeatureRef const* features;
  int32_t num_features;
  Stamp const* stamps;  // [tables], of the lookup; or null
  bool counts_lost;
  bool keeps_positions;  // else those of dealt entries are 0

  Stamp const* stamp_of(int32_t table) const {
    return stamps == nullptr ? nullptr : stamps + table;
  }
};

// A position that has a live row. Most entries are read on another core than they were written on,
// and moving their lines takes longer than all else. So the position lies apart, and is written
// only where it is needed; and the feature is that of the piece.
struct DealtEntry {
  uint32_t slot;  // counted from the first slot of the partition
  uint32_t bag;
};

// Which partitions there are, and the pieces of the batch that are dealt independently.
struct PartitionLayout {
  struct Piece {
    FeatureChunk chunk;
    int64_t first_entry;  // of the piece, in GradientPartitions::entries_
    int64_t first_end;    // of the piece, in GradientPartitions::ends_
  };
  int shift;                               // log2 of the slots of a partition
  std::vector<int64_t> first_partition;    // [tables + 1]
  std::vector<std::vector<Piece>> pieces;  // of each table, in order of feature and position
  int64_t num_entries, num_ends;

  PartitionLayout(Gradients const& gradients, int64_t num_threads);
};

// Entries of one partition from one piece, in order of position.
struct DealtStretch {
  uint32_t feature;
  size_t count;
  DealtEntry const* entries;
  uint32_t const* positions;  // null where they are not kept
};

class GradientPartitions {
 public:
  GradientPartitions(Gradients const& gradients, int64_t num_threads);

  int64_t num_pieces() const { return static_cast<int64_t>(pieces_.size()); }

  // Deals one piece. Unless the table keeps its slots (keeps_slots), it checks that each slot still
  // holds the id: a later lookup may have evicted it. Positions of lost rows are dropped and, if
  // `counts_lost`, counted in the table.
  void deal(int64_t piece);

  // What follows is known once all pieces are dealt.
  int64_t num_partitions() const { return layout_.first_partition.back(); }
  int64_t slots_per_partition() const { return int64_t{1} << layout_.shift; }
  int32_t table_of(int64_t partition) const { return gradients_.first_table + place_of(partition); }
  // What the slots of the partition's entries are counted from.
  int64_t first_slot(int64_t partition) const {
    auto const first = layout_.first_partition[size_t(place_of(partition))];
    return (partition - first) << layout_.shift;
  }

  // Calls function(stretch) for stretches that hold the partition's entries, in order of feature
  // and position.
  template <class Function>
  void for_each_stretch(int64_t partition, Function const& function) const {
    auto const place = size_t(place_of(partition));
    auto const local = partition - layout_.first_partition[place];
    for (auto const& piece : layout_.pieces[place]) {
      auto const* const ends = ends_.data() + piece.first_end;
      auto const begin = local == 0 ? 0 : ends[local - 1];
      if (begin == ends[local]) continue;
      auto const first = piece.first_entry + begin;
      auto const feature = static_cast<uint32_t>(piece.chunk.feature);
      auto const* const positions = keeps_positions() ? positions_.data() + first : nullptr;
      function(DealtStretch{feature, ends[local] - begin, entries_.data() + first, positions});
    }
  }

 private:
  int32_t place_of(int64_t partition) const;  // of its table among those of the gradients
  bool keeps_positions() const { return gradients_.keeps_positions; }
  template <bool keeps_positions>
  void deal(PartitionLayout::Piece const& piece);

  Gradients const gradients_;
  PartitionLayout const layout_;
  std::vector<PartitionLayout::Piece const*> pieces_;  // of all tables
  Buffer<uint32_t> ends_;  // [pieces, partitions of the piece's table] ends in the piece's entries
  Buffer<DealtEntry> entries_;
  Buffer<uint32_t> positions_;  // [entries], or empty
};

}  // namespace dynemb::cpu
