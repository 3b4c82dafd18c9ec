// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/lookup/row_writer.h: from slots to the rows that a lookup returns, one per id or pooled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/feature_ref.h"
#include "core/group.h"
#include "core/row.h"
#include "core/slot.h"
#include "cpu/loops/row_ops.h"
#include "cpu/loops/row_sums.h"

namespace dynemb::cpu {

// Rows are prefetched some ids before they are read: enough for the misses that a core can have in
// flight, few enough that the first cache keeps them.
constexpr int64_t kRowsAhead = 16;
constexpr int64_t kRowsInTurn = 8;

// Where a RowWriter finds the rows of slots, and what it reads for a slot below 0.
template <class V>
struct TableRows {
  TableRef const& table;
  Initializer const& missing;

  V const* at(int64_t slot) const { return row_at<V>(table, slot); }
  Initializer const& initial(int32_t /*slot*/) const { return missing; }
};

// Writes bags in order, as their slots become known. V: the type of stored rows.
template <Isa isa, class V, class Rows = TableRows<V>>
class RowWriter {
 public:
  // An id without a row reads what `missing` gives for its key. Bags with an id that may still get
  // one (kMissingSlot) are put off: listed in `put_off`, and written by `write_bag` later.
  RowWriter(TableRef const& table, FeatureRef const& feature, Rows const& rows, bool streams,
            std::vector<int64_t>* put_off)
      : table_(table),
        feature_(feature),
        rows_(rows),
        streams_(streams),
        copies_(has_row_of_each_id(feature)),
        put_off_(put_off),
        row_bytes_(int64_t{table.dim} * int64_t{sizeof(V)}),
        lines_(size_t(table.dim - 1) / 16 + 1),
        buffer_(lines_ * 2) {}

  // What follows is about these bags, which have none but these positions.
  void start(int64_t first_bag, int64_t end_bag, BagRange const& positions) {
    bag_ = first_bag;
    end_bag_ = end_bag;
    positions_ = positions;
    if (bag_ < end_bag_) start_bag();
  }

  bool has_rows() const { return bag_ < end_bag_; }

  template <Cache cache>
  void prefetch(int64_t begin, int64_t end) const {
    auto const* const slots = feature_.slots;
    with_prefetch<cache>(row_bytes_, [&](auto const& prefetch) {
#pragma GCC unroll 4
      for (auto i = begin; i < end; ++i) {
        prefetch(reinterpret_cast<char const*>(rows_.at(std::max(slots[i], 0))));
      }
    });
  }

  // Precondition: positions before `begin` are written, the slots of those before `end` are known.
  void write(int64_t begin, int64_t end) {
    auto prefetched = begin;
    do {  // once where there is no position: for empty bags
      begin = std::min(end, begin + kRowsInTurn);
      auto const limit = std::min(end, begin + kRowsAhead);
      prefetch<Cache::kFirst>(prefetched, limit);
      prefetched = limit;
      write_until(begin);
    } while (begin < end);
  }

  // A bag that was put off, now that all slots are known.
  void write_bag(int64_t bag, BagRange const& positions) {
    start(bag, bag + 1, positions);
    write_until(range_.end);
  }

 private:
  // Reads no row of a position from `limit` on.
  void write_until(int64_t limit) {
    while (bag_ < end_bag_) {
      auto const is_short = sums_at_once();
      if (is_short && range_.end > limit) return;
      if (!is_short || !sum_bag()) {
        auto const stop = std::min(limit, range_.end);
        if (copies_) {
          copy_until(stop);
        } else {
          add_until(stop);
        }
        if (position_ < range_.end) return;
        finish_bag();
      }
      if (++bag_ < end_bag_) start_bag();
    }
  }

  struct alignas(64) Line {
    float values[16];
  };
  float* sum() { return buffer_[0].values; }
  V* initial() { return reinterpret_cast<V*>(buffer_[lines_].values); }

  // Calls write(out) with the place of the bag's row, of the type that is returned.
  template <class Write>
  void with_out(int64_t bag, Write const& write) const {
    with_value_type(feature_.row_type, [&](auto zero) {
      write(row_at_bag(static_cast<decltype(zero)*>(feature_.rows), bag));
    });
  }

  template <class O>
  O* row_at_bag(O* rows, int64_t bag) const {
    return rows + row_offset(feature_.places, bag, table_.dim);
  }

  void start_bag() {
    // Rows that are copied need no bags: all positions are one range.
    if (copies_) {
      range_ = {bag_, end_bag_};
      bag_ = end_bag_ - 1;
    } else {
      range_ = within(bag_range(feature_, bag_), positions_);
    }
    position_ = range_.begin;
    count_ = 0;
    waits_ = false;
  }

  // What an id without a row reads; null for padding. Apart: rare, and long where it is inlined.
  __attribute__((noinline)) V const* initial_row(int64_t position) {
    if (feature_.slots[position] == kPaddingSlot) return nullptr;
    auto const key = load_key(feature_.ids, feature_.id_type, position);
    auto const& initializer = rows_.initial(feature_.slots[position]);
    initialize_row(ScalarGroup{}, initializer, row_seed(table_), key, table_.dim, initial());
    return initial();
  }

  void copy_until(int64_t stop) {
    with_value_type(feature_.row_type, [&](auto zero) {
      using O = decltype(zero);
      auto* const rows = static_cast<O*>(feature_.rows);
      for (; position_ < stop; ++position_) copy_one(row_at_bag(rows, position_));
    });
  }

  template <class O>
  void copy_one(O* out) {
    auto const slot = feature_.slots[position_];
    if (slot == kMissingSlot) return put_off_->push_back(position_);
    auto const* const row = slot >= 0 ? rows_.at(slot) : initial_row(position_);
    if (row == nullptr) return fill_zeros(out, table_.dim);
    copy_row<isa>(row, table_.dim, out, streams_);
  }

  // Adds the rows of positions up to `stop`: as many at once as follow each other with a row, or
  // one initial row.
  void add_until(int64_t stop) {
    while (position_ < stop) {
      V const* rows[kRowsAtOnce];
      auto const most = static_cast<int>(std::min<int64_t>(kRowsAtOnce, stop - position_));
      int count = 0;
      for (; count < most; ++count) {
        auto const slot = feature_.slots[position_ + count];
        if (slot < 0) break;
        rows[count] = rows_.at(slot);
      }
      auto const passed = std::max(count, 1);
      if (count == 0) {
        waits_ = waits_ || feature_.slots[position_] == kMissingSlot;
        rows[0] = waits_ ? nullptr : initial_row(position_);
        count = rows[0] == nullptr ? 0 : 1;
      }
      if (count > 0) add(rows, count);
      position_ += passed;
    }
  }

  // A short bag is read as a whole: its sum stays in registers.
  bool sums_at_once() const {
    auto const count = range_.end - range_.begin;
    return !copies_ && count > 0 && count <= kRowsAtOnce;
  }

  // Writes the bag, or returns false because an id has no row.
  bool sum_bag() {
    auto const count = static_cast<int>(range_.end - range_.begin);
    auto const* const slots = feature_.slots + range_.begin;
    V const* rows[kRowsAtOnce];
    int32_t signs = 0;
#pragma GCC unroll 4
    for (int i = 0; i < count; ++i) {
      signs |= slots[i];
      rows[i] = rows_.at(std::max(slots[i], 0));
    }
    if (signs < 0) return false;
    auto const scale = scale_of(count);
    with_out(bag_, [&](auto* out) {
      sum_rows<isa>(rows, factors_from(range_.begin), count, table_.dim, scale, out);
    });
    return true;
  }

  float const* factors_from(int64_t position) const {
    return feature_.weights == nullptr ? nullptr : feature_.weights + position;
  }

  void add(V const* const* rows, int count) {
    if (count_ == 0) std::fill(sum(), sum() + table_.dim, 0.0f);
    add_rows<isa>(rows, factors_from(position_), count, table_.dim, sum());
    count_ += count;
  }

  // What the sum of so many rows is multiplied by; also an output, for the backward pass.
  float scale_of(int64_t count) const {
    auto const mean = feature_.pooling == Pooling::kMean;
    auto const scale = mean && count > 0 ? 1.0f / static_cast<float>(count) : 1.0f;
    if (mean && feature_.scale != nullptr) feature_.scale[bag_] = count == 0 ? 0.0f : scale;
    return scale;
  }

  void finish_bag() {
    if (copies_) return;
    if (waits_) return put_off_->push_back(bag_);
    auto const scale = scale_of(count_);
    with_out(bag_, [&](auto* out) {
      if (count_ == 0) return fill_zeros(out, table_.dim);
      scale_row<isa>(sum(), scale, table_.dim, out);
    });
  }

  TableRef const& table_;
  FeatureRef const& feature_;
  Rows const rows_;
  bool const streams_;
  bool const copies_;  // not pooled, or sums of one id each
  std::vector<int64_t>* const put_off_;
  int64_t const row_bytes_;
  size_t const lines_;
  std::vector<Line> buffer_;  // [2, lines]: the sum, the row of an id that has none
  int64_t bag_ = 0, end_bag_ = 0;
  BagRange positions_{0, 0};
  BagRange range_{0, 0};
  int64_t position_ = 0;
  int64_t count_ = 0;
  bool waits_ = false;
};

}  // namespace dynemb::cpu
