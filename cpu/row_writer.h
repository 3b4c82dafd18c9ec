// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/row_writer.h: from slots to the rows that a lookup returns, one per id or pooled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/feature_ref.h"
#include "core/group.h"
#include "core/row.h"
#include "core/slot.h"
#include "cpu/feature_chunks.h"
#include "cpu/row_ops.h"

namespace dynemb::cpu {

// Writes the bags of a chunk in order, as their slots become known. V: the type of stored rows, O:
// of those returned.
template <class V, class O>
class RowWriter {
 public:
  // An id without a row reads what `missing` gives for its key. Bags with an id that may still get
  // one (kMissingSlot) are put off: listed in `put_off`, and written by `write_bag` later.
  RowWriter(TableRef const& table, FeatureRef const& feature, Initializer const& missing,
            bool streams, std::vector<int64_t>* put_off)
      : table_(table),
        feature_(feature),
        missing_(missing),
        streams_(streams),
        put_off_(put_off),
        buffer_(size_t(table.dim) * 2) {}

  void start(FeatureChunk const& chunk) {
    bag_ = chunk.first_bag;
    end_bag_ = chunk.end_bag;
    if (bag_ < end_bag_) start_bag();
  }

  // The slots of all positions before `limit` are known.
  void write_until(int64_t limit) {
    while (bag_ < end_bag_) {
      auto const stop = std::min(limit, range_.end);
      if (feature_.pooling == Pooling::kNone) {
        for (; position_ < stop; ++position_) write_one(position_);
      } else {
        for (; position_ < stop; ++position_) add(position_);
      }
      if (position_ < range_.end) return;
      finish_bag();
      if (++bag_ < end_bag_) start_bag();
    }
  }

  // A bag that was put off, now that all slots are known.
  void write_bag(int64_t bag) {
    bag_ = bag;
    end_bag_ = bag + 1;
    start_bag();
    write_until(range_.end);
  }

  void prefetch(int32_t slot) const {
    if (slot >= 0) prefetch_row(table_, slot);
  }

 private:
  float* sum() { return reinterpret_cast<float*>(buffer_.data()); }
  V* initial() { return reinterpret_cast<V*>(buffer_.data() + table_.dim); }
  O* out(int64_t bag) const { return static_cast<O*>(feature_.rows) + bag * table_.dim; }

  void start_bag() {
    // Rows that are not pooled need no bags: all positions are one range.
    if (feature_.pooling == Pooling::kNone) {
      range_ = {bag_, end_bag_};
      bag_ = end_bag_ - 1;
    } else {
      range_ = bag_range(feature_, bag_);
    }
    position_ = range_.begin;
    count_ = 0;
    waits_ = false;
  }

  // Null for padding.
  V const* row_of(int64_t position) {
    auto const slot = feature_.slots[position];
    if (slot >= 0) return row_at<V>(table_, slot);
    if (slot == kPaddingSlot) return nullptr;
    auto const key = load_key(feature_.ids, feature_.id_type, position);
    initialize_row(ScalarGroup{}, missing_, table_.counters[kSeed], key, table_.dim, initial());
    return initial();
  }

  void write_one(int64_t position) {
    if (feature_.slots[position] == kMissingSlot) return put_off_->push_back(position);
    auto const* const row = row_of(position);
    if (row == nullptr) return fill_zeros(out(position), table_.dim);
    copy_row(row, table_.dim, out(position), streams_);
  }

  void add(int64_t position) {
    waits_ = waits_ || feature_.slots[position] == kMissingSlot;
    if (waits_) return;
    auto const* const row = row_of(position);
    if (row == nullptr) return;
    if (count_ == 0) std::fill(sum(), sum() + table_.dim, 0.0f);
    ++count_;
    add_row(row, weight_of(feature_, position), table_.dim, sum());
  }

  void finish_bag() {
    if (feature_.pooling == Pooling::kNone) return;
    if (waits_) return put_off_->push_back(bag_);
    auto const mean = feature_.pooling == Pooling::kMean;
    auto const factor = mean && count_ > 0 ? 1.0f / static_cast<float>(count_) : 1.0f;
    if (mean && feature_.scale != nullptr) feature_.scale[bag_] = count_ == 0 ? 0.0f : factor;
    if (count_ == 0) return fill_zeros(out(bag_), table_.dim);
    scale_row(sum(), factor, table_.dim, out(bag_));
  }

  TableRef const& table_;
  FeatureRef const& feature_;
  Initializer const& missing_;
  bool const streams_;
  std::vector<int64_t>* const put_off_;
  std::vector<float> buffer_;  // [2, dim]: the sum, the row of an id that has none
  int64_t bag_ = 0, end_bag_ = 0;
  BagRange range_{0, 0};
  int64_t position_ = 0;
  int64_t count_ = 0;
  bool waits_ = false;
};

}  // namespace dynemb::cpu
