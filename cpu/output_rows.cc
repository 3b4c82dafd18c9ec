// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/output_rows.cc: from slots to the rows that a lookup returns, pooled or one per id.
#include "cpu/output_rows.h"

#include <vector>

#include "core/group.h"
#include "core/row.h"
#include "core/slot.h"
#include "cpu/prefetch.h"

namespace dynemb::cpu {
namespace {

constexpr int64_t kPrefetchDistance = 8;  // rows; about the latency of memory over a row's copy

template <class V>
void add_row(V const* row, float weight, int32_t dim, float* sum) {
  for (int32_t i = 0; i < dim; ++i) sum[i] += weight * to_float(row[i]);
}

template <class V, class O>
void copy_row(V const* row, int32_t dim, O* out) {
  for (int32_t i = 0; i < dim; ++i) from_float(to_float(row[i]), out + i);
}

template <class V, class O>
struct RowWriter {
  TableRef const& table;
  FeatureRef const& feature;
  Initializer const& missing;
  std::vector<V> initial;  // [dim] the row of an id that is not stored
  std::vector<float> sum;  // [dim]

  RowWriter(TableRef const& t, FeatureRef const& f, Initializer const& m)
      : table(t), feature(f), missing(m), initial(size_t(t.dim)), sum(size_t(t.dim)) {}

  // Null for padding.
  V const* row_of(int64_t position) {
    auto const slot = feature.slots[position];
    if (slot >= 0) return row_at<V>(table, slot);
    if (slot == kPaddingSlot) return nullptr;
    auto const key = load_key(feature.ids, feature.id_type, position);
    initialize_row(ScalarGroup{}, missing, table.counters[kSeed], key, table.dim, initial.data());
    return initial.data();
  }

  void prefetch(int64_t position, int64_t end) {
    if (position < end && feature.slots[position] >= 0) {
      prefetch_row(table, feature.slots[position]);
    }
  }

  O* out(int64_t bag) { return static_cast<O*>(feature.rows) + bag * table.dim; }

  void write_each(FeatureChunk const& bags) {
    for (auto position = bags.begin; position < bags.end; ++position) {
      prefetch(position + kPrefetchDistance, bags.end);
      if (auto const* const row = row_of(position)) {
        copy_row(row, table.dim, out(position));
      } else {
        for (int32_t i = 0; i < table.dim; ++i) from_float(0.0f, out(position) + i);
      }
    }
  }

  void write_pooled(FeatureChunk const& bags) {
    auto const last = bag_range(feature, bags.end - 1).end;
    for (auto bag = bags.begin; bag < bags.end; ++bag) {
      auto const range = bag_range(feature, bag);
      int64_t count = 0;
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (auto position = range.begin; position < range.end; ++position) {
        prefetch(position + kPrefetchDistance, last);
        auto const* const row = row_of(position);
        if (row == nullptr) continue;
        ++count;
        add_row(row, weight_of(feature, position), table.dim, sum.data());
      }
      finish_bag(bag, count);
    }
  }

  void finish_bag(int64_t bag, int64_t count) {
    auto factor = 1.0f;
    if (feature.pooling == Pooling::kMean) {
      factor = count == 0 ? 0.0f : 1.0f / static_cast<float>(count);
      if (feature.scale != nullptr) feature.scale[bag] = factor;
    }
    auto* const result = out(bag);
    for (int32_t i = 0; i < table.dim; ++i) from_float(factor * sum[size_t(i)], result + i);
  }
};

template <class V, class O>
void write_typed(TableRef const& table, FeatureRef const& feature, Initializer const& missing,
                 FeatureChunk const& bags) {
  if (bags.begin >= bags.end) return;
  RowWriter<V, O> writer(table, feature, missing);
  if (feature.pooling == Pooling::kNone) {
    writer.write_each(bags);
  } else {
    writer.write_pooled(bags);
  }
}

}  // namespace

void write_rows(TableRef const& table, FeatureRef const& feature, Initializer const& missing,
                FeatureChunk const& bags) {
  with_value_type(table.value_type, [&](auto stored) {
    with_value_type(feature.row_type, [&](auto returned) {
      write_typed<decltype(stored), decltype(returned)>(table, feature, missing, bags);
    });
  });
}

}  // namespace dynemb::cpu
