// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/partition_rows.h: the entries of one partition, grouped by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/gradients/partitions.h"

namespace dynemb::cpu {

struct FirstOfRow {
  uint32_t feature;
  uint32_t position;
};

// Holds rows in the order in which they first occur, and says where an entry goes if those of a row
// shall follow each other, in order of position. Each thread keeps one between partitions.
class PartitionRows {
 public:
  static PartitionRows& of_this_thread() {
    thread_local PartitionRows rows;
    return rows;
  }

  void load(GradientPartitions const& partitions, int64_t partition) {
    num_entries_ = 0;
    partitions.for_each_stretch(
        partition, [&](DealtStretch const& stretch) { num_entries_ += stretch.count; });
    reserve(num_entries_, size_t(partitions.slots_per_partition()));
    count_entries(partitions, partition);
    uint32_t sum = 0;
    for (size_t row = 0; row < num_rows_; ++row) {  // counts become first places
      auto const entries_of_row = ends_[row];
      ends_[row] = sum;
      sum += entries_of_row;
    }
    for (size_t row = 0; row < num_rows_; ++row) row_of_slot_[slots_[row]] = 0;
  }

  // For each stretch of the partition that was loaded, calls put = begin_stretch(stretch), and
  // put(i, place) for each entry i of the stretch. To be called once for each load.
  template <class BeginStretch>
  void place(GradientPartitions const& partitions, int64_t partition,
             BeginStretch const& begin_stretch) {
    auto const* row = row_of_entry_.data();
    auto* const places = ends_.data();  // first places become ends
    partitions.for_each_stretch(partition, [&](DealtStretch const& stretch) {
      auto const put = begin_stretch(stretch);
      for (size_t i = 0; i < stretch.count; ++i) put(i, places[*row++]++);
    });
  }

  size_t size() const { return num_rows_; }
  size_t num_entries() const { return num_entries_; }
  uint32_t slot(size_t row) const { return slots_[row]; }
  // The places of a row's entries, once these are placed.
  uint32_t begin(size_t row) const { return row == 0 ? 0 : ends_[row - 1]; }
  uint32_t end(size_t row) const { return ends_[row]; }
  // Where the row first occurs. Precondition: positions are kept.
  FirstOfRow const& first(size_t row) const { return firsts_[row]; }

 private:
  // Arrays only grow, and are written without looking at their ends.
  void reserve(size_t entries, size_t slots) {
    if (row_of_slot_.size() < slots) row_of_slot_.resize(slots);
    if (row_of_entry_.size() >= entries) return;
    slots_.resize(entries + 1);  // and the place of a row that there will not be
    ends_.resize(entries + 1);
    firsts_.resize(entries + 1);
    row_of_entry_.resize(entries);
  }

  // Whether a row is new is random, so it must not become a branch: the next row's place is written
  // in any case.
  void count_entries(GradientPartitions const& partitions, int64_t partition) {
    auto* next = row_of_entry_.data();
    auto* const row_of_slot = row_of_slot_.data();
    auto* const slots = slots_.data();
    auto* const counts = ends_.data();
    auto* const firsts = firsts_.data();
    uint32_t rows = 0;
    partitions.for_each_stretch(partition, [&](DealtStretch const& stretch) {
      for (size_t i = 0; i < stretch.count; ++i) {
        auto const slot = stretch.entries[i].slot;
        slots[rows] = slot;
        counts[rows] = 0;
        if (stretch.positions != nullptr) firsts[rows] = {stretch.feature, stretch.positions[i]};
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

  size_t num_rows_ = 0;
  size_t num_entries_ = 0;
  std::vector<uint32_t> row_of_slot_;   // [slots of a partition] row + 1, or 0 between loads
  std::vector<uint32_t> slots_;         // [rows]
  std::vector<uint32_t> ends_;          // [rows] counts, then first places, then their ends
  std::vector<FirstOfRow> firsts_;      // [rows] where positions are kept
  std::vector<uint32_t> row_of_entry_;  // [entries] in order of position
};

}  // namespace dynemb::cpu
