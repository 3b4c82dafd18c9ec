// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/partition_rows.h: the entries of one partition, brought together by row.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/gradient_runs.h"

namespace dynemb::cpu {

// Rows in the order in which they first occur; the entries of a row in order of position. One for
// each thread, kept between partitions.
class PartitionRows {
 public:
  static PartitionRows& of_this_thread() {
    thread_local PartitionRows rows;
    return rows;
  }

  void load(GradientRuns const& runs, int64_t partition) {
    slots_.clear();
    ends_.clear();
    row_of_entry_.clear();
    row_of_slot_.resize(size_t(runs.slots_per_partition()));  // 0: no row yet
    runs.for_each_stretch(partition, [&](Entry const* first, Entry const* last) {
      for (auto const* entry = first; entry != last; ++entry) count(*entry);
    });
    uint32_t sum = 0;
    for (auto& end : ends_) {  // counts become first places, which become ends below
      auto const count = end;
      end = sum;
      sum += count;
    }
    entries_.resize(sum);
    auto const* row = row_of_entry_.data();
    runs.for_each_stretch(partition, [&](Entry const* first, Entry const* last) {
      for (auto const* entry = first; entry != last; ++entry) entries_[ends_[*row++]++] = *entry;
    });
    for (auto const slot : slots_) row_of_slot_[slot] = 0;
  }

  size_t size() const { return slots_.size(); }
  size_t num_entries() const { return entries_.size(); }
  uint32_t slot(size_t row) const { return slots_[row]; }
  uint32_t begin(size_t row) const { return row == 0 ? 0 : ends_[row - 1]; }
  uint32_t end(size_t row) const { return ends_[row]; }
  Entry const& entry(size_t i) const { return entries_[i]; }

 private:
  void count(Entry const& entry) {
    auto& row = row_of_slot_[entry.slot];
    if (row == 0) {
      slots_.push_back(entry.slot);
      ends_.push_back(0);
      row = static_cast<uint32_t>(slots_.size());
    }
    ++ends_[row - 1];
    row_of_entry_.push_back(row - 1);
  }

  std::vector<uint32_t> row_of_slot_;   // [slots of a partition] row + 1, or 0 between loads
  std::vector<uint32_t> slots_;         // [rows]
  std::vector<uint32_t> ends_;          // [rows] into entries_
  std::vector<uint32_t> row_of_entry_;  // [entries] in order of position
  std::vector<Entry> entries_;          // by row
};

}  // namespace dynemb::cpu
