// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/partition_rows.h: the entries of one partition, grouped by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/gradients/partitions.h"

namespace dynemb::cpu {

// Holds rows in the order in which they first occur, and the entries of a row in order of position.
// Each thread keeps one between partitions.
class PartitionRows {
 public:
  static PartitionRows& of_this_thread() {
    thread_local PartitionRows rows;
    return rows;
  }

  void load(GradientPartitions const& partitions, int64_t partition) {
    size_t count = 0;
    partitions.for_each_stretch(partition,
                                [&](GradientEntry const* first, GradientEntry const* last) {
                                  count += static_cast<size_t>(last - first);
                                });
    reserve(count, size_t(partitions.slots_per_partition()));
    count_entries(partitions, partition);
    uint32_t sum = 0;
    for (size_t row = 0; row < num_rows_; ++row) {  // counts become first places
      auto const entries_of_row = ends_[row];
      ends_[row] = sum;
      sum += entries_of_row;
    }
    place_entries(partitions, partition);  // first places become ends
    num_entries_ = count;
    for (size_t row = 0; row < num_rows_; ++row) row_of_slot_[slots_[row]] = 0;
  }

  size_t size() const { return num_rows_; }
  size_t num_entries() const { return num_entries_; }
  uint32_t slot(size_t row) const { return slots_[row]; }
  uint32_t begin(size_t row) const { return row == 0 ? 0 : ends_[row - 1]; }
  uint32_t end(size_t row) const { return ends_[row]; }
  GradientEntry const& entry(size_t i) const { return entries_[i]; }

 private:
  // Arrays only grow, and are written without looking at their ends.
  void reserve(size_t entries, size_t slots) {
    if (row_of_slot_.size() < slots) row_of_slot_.resize(slots);
    if (entries_.size() >= entries) return;
    slots_.resize(entries + 1);  // and the place of a row that there will not be
    ends_.resize(entries + 1);
    row_of_entry_.resize(entries);
    entries_.resize(entries);
  }

  // Whether a row is new is random, so it must not become a branch: the next row's place is written
  // in any case.
  void count_entries(GradientPartitions const& partitions, int64_t partition) {
    auto* next = row_of_entry_.data();
    auto* const row_of_slot = row_of_slot_.data();
    auto* const slots = slots_.data();
    auto* const counts = ends_.data();
    uint32_t rows = 0;
    partitions.for_each_stretch(partition,
                                [&](GradientEntry const* first, GradientEntry const* last) {
                                  for (auto const* entry = first; entry != last; ++entry) {
                                    auto const slot = entry->slot;
                                    slots[rows] = slot;
                                    counts[rows] = 0;
                                    auto const known = row_of_slot[slot];
                                    auto const is_new = static_cast<uint32_t>(known == 0);
                                    rows += is_new;
                                    auto const row = known + is_new * rows;
                                    row_of_slot[slot] = row;
                                    ++counts[row - 1];
                                    *next++ = row - 1;
                                  }
                                });
    num_rows_ = rows;
  }

  void place_entries(GradientPartitions const& partitions, int64_t partition) {
    auto const* row = row_of_entry_.data();
    partitions.for_each_stretch(partition,
                                [&](GradientEntry const* first, GradientEntry const* last) {
                                  for (auto const* entry = first; entry != last; ++entry)
                                    entries_[ends_[*row++]++] = *entry;
                                });
  }

  size_t num_rows_ = 0;
  size_t num_entries_ = 0;
  std::vector<uint32_t> row_of_slot_;   // [slots of a partition] row + 1, or 0 between loads
  std::vector<uint32_t> slots_;         // [rows]
  std::vector<uint32_t> ends_;          // [rows] into entries_
  std::vector<uint32_t> row_of_entry_;  // [entries] in order of position
  std::vector<GradientEntry> entries_;  // by row
};

}  // namespace dynemb::cpu
