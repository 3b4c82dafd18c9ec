// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradient_runs.h: groups the positions of a batch by the row that their gradients belong to.
#pragma once

#include <cstdint>
#include <vector>

#include "core/args.h"
#include "cpu/thread_pool.h"

namespace dynemb::cpu {

// A position that has a live row: the slot counted from the first slot of its partition, and the
// item, which is the position counted over all features of the call.
struct Entry {
  uint32_t slot;
  uint32_t item;
};

// Positions cut into partitions of neighbouring slots; within a partition they are sorted by slot,
// and equal slots by position, so that sums do not depend on threads or on slot numbers.
class GradientRuns {
 public:
  static constexpr int64_t kAhead = 8;  // entries

  // Checks that each slot still holds the id (a later lookup may have given it away); positions
  // whose row has left are dropped and, if `counts_lost`, counted in the table.
  GradientRuns(TableRef const* tables, int32_t num_tables, FeatureRef const* features,
               int32_t num_features, bool counts_lost, ThreadPool const& pool);

  // Calls function(table, slot, first, last) for each run of entries of one row; rows of different
  // runs are different, so runs may be processed at the same time. Some entries earlier it calls
  // ahead(table, slot, entry), to have row and gradient fetched.
  template <class Ahead, class Function>
  void for_each_run(ThreadPool const& pool, Ahead const& ahead, Function const& function) {
    for_each_chunk(pool, num_partitions_, [&](int64_t partition) {
      auto* const begin = entries_.data() + starts_[size_t(partition)];
      auto* const end = entries_.data() + starts_[size_t(partition) + 1];
      sort(begin, end);
      auto const base = static_cast<uint64_t>(partition) * slots_per_partition_;
      for (auto const* first = begin; first != end;) {
        if (end - first > kAhead) {
          auto const linear = static_cast<int64_t>(base + first[kAhead].slot);
          auto const table = table_of(linear);
          ahead(table, linear - first_slot_[size_t(table)], first[kAhead]);
        }
        auto const* last = first + 1;
        while (last != end && last->slot == first->slot) ++last;
        auto const linear = static_cast<int64_t>(base + first->slot);
        auto const table = table_of(linear);
        function(table, linear - first_slot_[size_t(table)], first, last);
        first = last;
      }
    });
  }

  struct Place {
    int32_t feature;
    int64_t position;
  };
  Place place_of(uint32_t item) const;

 private:
  struct Piece;
  int32_t table_of(int64_t linear) const;
  void sort(Entry* begin, Entry* end) const;
  void collect(Piece* piece) const;

  TableRef const* tables_;
  FeatureRef const* features_;
  bool counts_lost_;
  std::vector<int64_t> first_slot_;  // of each table, in the numbering of all tables
  std::vector<int64_t> first_item_;  // of each feature
  int64_t num_partitions_ = 1;
  uint64_t slots_per_partition_ = 1;
  std::vector<int64_t> starts_;  // [num_partitions + 1] into entries_
  std::vector<Entry> entries_;
};

}  // namespace dynemb::cpu
