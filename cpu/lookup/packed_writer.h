// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/lookup/packed_writer.h: from slots to the rows that a serving lookup returns, where stored
// rows are packed. Slots of all positions are known, and no row is put off, so it is simpler than
// cpu/lookup/row_writer.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/feature_ref.h"
#include "core/group.h"
#include "core/row.h"
#include "core/slot.h"
#include "cpu/loops/feature_chunks.h"
#include "cpu/loops/packed_rows.h"
#include "cpu/loops/row_ops.h"

namespace dynemb::cpu {

template <Isa isa, RowCode code>
class PackedWriter {
 public:
  PackedWriter(TableRef const& table, FeatureRef const& feature, bool streams)
      : table_(table),
        feature_(feature),
        streams_(streams),
        row_bytes_(packed_row_bytes(code, table.dim)),
        sum_(static_cast<size_t>(table.dim)),
        row_(static_cast<size_t>(table.dim)) {}

  template <Cache cache>
  void prefetch(int64_t begin, int64_t end) const {
    for (auto i = begin; i < end; ++i) {
      auto const* const row = row_at(std::max(feature_.slots[i], 0));
      prefetch_bytes<cache>(row, row_bytes_);
      prefetch_line<cache>(reinterpret_cast<char const*>(row + row_bytes_ - 1));
    }
  }

  // Writes all bags of a chunk.
  void write(FeatureChunk const& chunk) {
    prefetched_ = chunk.begin;
    end_ = chunk.end;
    for (auto bag = chunk.first_bag; bag < chunk.end_bag; ++bag) {
      if (has_row_of_each_id(feature_)) {
        copy(bag);
      } else {
        pool(bag, within(bag_range(feature_, bag), {chunk.begin, chunk.end}));
      }
    }
  }

 private:
  static constexpr int64_t kAhead = 16;  // rows, as in cpu/lookup/row_writer.h

  uint8_t const* row_at(int64_t slot) const {
    return static_cast<uint8_t const*>(table_.values) + slot * row_bytes_;
  }

  void prefetch_ahead(int64_t position) {
    auto const limit = std::min(end_, position + kAhead);
    if (limit <= prefetched_) return;
    prefetch<Cache::kFirst>(std::max(prefetched_, position), limit);
    prefetched_ = limit;
  }

  // Calls write(out) with the place of the bag's row, of the type that is returned.
  template <class Write>
  void with_out(int64_t bag, Write const& write) const {
    with_value_type(feature_.row_type, [&](auto zero) {
      auto* const rows = static_cast<decltype(zero)*>(feature_.rows);
      write(rows + row_offset(feature_.places, bag, table_.dim));
    });
  }

  void copy(int64_t position) {
    prefetch_ahead(position);
    auto const slot = feature_.slots[position];
    if (slot == kPaddingSlot) {
      return with_out(position, [&](auto* out) { fill_zeros(out, table_.dim); });
    }
    if (slot >= 0) {
      auto const* const row = row_at(slot);
      unpack_row<isa, code>(row, scale_of_row(row), table_.dim, row_.data());
    } else {
      draw(position);
    }
    with_out(position, [&](auto* out) { copy_row<isa>(row_.data(), table_.dim, out, streams_); });
  }

  void pool(int64_t bag, BagRange const& range) {
    std::fill(sum_.begin(), sum_.end(), 0.0f);
    int64_t count = 0;  // of ids, padding left out
    for (auto position = range.begin; position < range.end;) {
      prefetch_ahead(position);
      position = add_some(position, range.end, &count);
    }
    auto const mean = feature_.pooling == Pooling::kMean && count > 0;
    auto const scale = mean ? 1.0f / static_cast<float>(count) : 1.0f;
    with_out(bag, [&](auto* out) { scale_row<isa>(sum_.data(), scale, table_.dim, out); });
  }

  // Adds rows that follow each other, or one that is not in the table; returns the next position.
  int64_t add_some(int64_t position, int64_t end, int64_t* count) {
    uint8_t const* rows[kAhead];
    float factors[kAhead];
    int found = 0;
    end = std::min(end, position + kAhead);
    for (; position < end && feature_.slots[position] >= 0; ++position, ++found) {
      rows[found] = row_at(feature_.slots[position]);
      factors[found] = weight_of(feature_, position) * scale_of_row(rows[found]);
    }
    *count += found;
    if (found > 0) {
      add_packed_rows<isa, code>(rows, factors, found, table_.dim, sum_.data());
      return position;
    }
    if (feature_.slots[position] != kPaddingSlot) {
      draw(position);
      add_drawn(weight_of(feature_, position));
      ++*count;
    }
    return position + 1;
  }

  // Into row_: what an id without a row reads. Apart: rare, and long where it is inlined.
  __attribute__((noinline)) void draw(int64_t position) {
    auto const key = load_key(feature_.ids, feature_.id_type, position);
    with_value_type(table_.value_type, [&](auto zero) {
      std::vector<decltype(zero)> drawn(row_.size());
      initialize_row(ScalarGroup{}, table_.eval_initializer, row_seed(table_), key, table_.dim,
                     drawn.data());
      copy_row<Isa::kPortable>(drawn.data(), table_.dim, row_.data(), false);
    });
  }

  __attribute__((noinline)) void add_drawn(float weight) {
    for (size_t i = 0; i < row_.size(); ++i) sum_[i] += weight * row_[i];
  }

  TableRef const& table_;
  FeatureRef const& feature_;
  bool const streams_;
  int64_t const row_bytes_;
  std::vector<float> sum_, row_;
  int64_t prefetched_ = 0, end_ = 0;
};

}  // namespace dynemb::cpu
