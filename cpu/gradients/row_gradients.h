// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/row_gradients.h: the gradients of each row of a partition, and their sum.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/feature_ref.h"
#include "core/value_type.h"
#include "cpu/gradients/partition_rows.h"
#include "cpu/loops/isa.h"
#include "cpu/loops/row_ops.h"
#include "cpu/loops/row_sums.h"

namespace dynemb::cpu {

// Where the gradients of a partition's entries lie, and what they are multiplied by. One for each
// thread, kept between partitions: the arrays only grow.
class GradientList {
 public:
  static GradientList& of_this_thread() {
    thread_local GradientList list;
    return list;
  }

  // Lists the gradients of a partition by row. Each is `dim` columns of `width` bytes.
  // Precondition: `rows` has loaded the partition.
  void load(GradientPartitions const& partitions, int64_t partition, PartitionRows& rows,
            FeatureRef const* features, int32_t dim, int64_t width) {
    if (gradients_.size() < rows.num_entries()) gradients_.resize(rows.num_entries());
    has_factors_ = false;
    partitions.for_each_stretch(partition, [&](DealtStretch const& stretch) {
      auto const& feature = features[stretch.feature];
      has_factors_ |= feature.scale != nullptr || feature.weights != nullptr;
    });
    if (has_factors_ && factors_.size() < rows.num_entries()) factors_.resize(rows.num_entries());
    rows.place(partitions, partition, [&](DealtStretch const& stretch) {
      auto const& feature = features[stretch.feature];
      return [&feature, places = feature.places, first = static_cast<char const*>(feature.rows),
              row_bytes = dim * width, dim, width, stretch, has_factors = has_factors_,
              gradients = gradients_.data(), factors = factors_.data()](size_t i, uint32_t place) {
        auto const bag = int64_t{stretch.entries[i].bag};
        gradients[place] =
            first + (places.group == 0 ? bag * row_bytes : row_offset(places, bag, dim) * width);
        if (!has_factors) return;
        auto const position = stretch.positions == nullptr ? 0 : stretch.positions[i];
        factors[place] = gradient_factor(feature, bag, position);
      };
    });
  }

  char const* const* gradients() const { return gradients_.data(); }
  float const* factors() const { return has_factors_ ? factors_.data() : nullptr; }  // null: ones

 private:
  std::vector<char const*> gradients_;  // [entries]
  std::vector<float> factors_;          // [entries]
  bool has_factors_ = false;
};

// T is the type of the gradients.
template <Isa isa, class T>
class RowGradients {
 public:
  static constexpr Isa kIsa = isa;

  // Precondition: `rows` has loaded the partition.
  RowGradients(GradientPartitions const& partitions, int64_t partition, PartitionRows& rows,
               FeatureRef const* features, int32_t dim)
      : rows_(rows),
        dim_(dim),
        bytes_(int64_t{dim} * int64_t{sizeof(T)}),
        list_(GradientList::of_this_thread()) {
    list_.load(partitions, partition, rows, features, dim, sizeof(T));
  }

  PartitionRows const& rows() const { return rows_; }

  // Prefetches the first gradients of rows [begin, end), as far as these exist.
  template <Cache cache>
  void prefetch(size_t begin, size_t end) const {
    end = std::min(end, rows_.size());
    if (begin < end) prefetch_entries<cache>(rows_.begin(begin), rows_.end(end - 1));
  }

  // The sum for one row, in order of position: in `sum`, or the only gradient where it lies.
  float const* sum_of(size_t row, float* sum) const {
    size_t begin = rows_.begin(row);
    size_t const end = rows_.end(row);
    auto const* const gradients = reinterpret_cast<T const* const*>(list_.gradients());
    auto const* const factors = list_.factors();
    auto const factors_from = [&](size_t i) { return factors == nullptr ? nullptr : factors + i; };
    if constexpr (std::is_same_v<T, float>) {
      if (end - begin == 1 && (factors == nullptr || factors[begin] == 1.0f)) {
        return gradients[begin];
      }
    }
    auto const count = std::min<size_t>(end - begin, kRowsAtOnce);
    sum_rows<isa>(gradients + begin, factors_from(begin), static_cast<int>(count), dim_, 1.0f, sum);
    for (begin += count; begin < end; begin += kRowsAtOnce) {
      auto const some = std::min<size_t>(end - begin, kRowsAtOnce);
      prefetch_entries<Cache::kFirst>(begin + some, end);
      add_rows<isa>(gradients + begin, factors_from(begin), static_cast<int>(some), dim_, sum);
    }
    return sum;
  }

 private:
  template <Cache cache>
  void prefetch_entries(size_t begin, size_t end) const {
    auto const* const gradients = list_.gradients();
    auto const limit = std::min<size_t>(end, begin + kRowsAtOnce);
    with_prefetch<cache>(bytes_, [&](auto const& prefetch) {
      for (auto i = begin; i < limit; ++i) prefetch(gradients[i]);
    });
  }

  PartitionRows const& rows_;
  int32_t const dim_;
  int64_t const bytes_;
  GradientList& list_;
};

}  // namespace dynemb::cpu
