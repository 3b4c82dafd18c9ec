// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/update.cc: gradients are summed row by row; then one optimizer step for each row, or the
// sums.
#include <algorithm>
#include <vector>

#include "core/group.h"
#include "core/update_row.h"
#include "cpu/gradient_runs.h"
#include "cpu/prefetch.h"
#include "cpu/table_ops.h"

namespace dynemb::cpu {
namespace {

// Adds the gradients of one row, in order of position.
void sum_run(GradientRuns const& runs, FeatureRef const* features, Entry const* first,
             Entry const* last, int32_t dim, float* sum) {
  std::fill(sum, sum + dim, 0.0f);
  for (auto const* entry = first; entry != last; ++entry) {
    auto const place = runs.place_of(entry->item);
    auto const& feature = features[place.feature];
    auto const bag = bag_of(feature, place.position);
    auto const factor = gradient_factor(feature, bag, place.position);
    with_value_type(feature.row_type, [&](auto zero) {
      auto const* const gradient = static_cast<decltype(zero) const*>(feature.rows) + bag * dim;
      for (int32_t i = 0; i < dim; ++i) sum[i] += factor * to_float(gradient[i]);
    });
  }
}

// The gradient row that an entry will add.
void prefetch_gradient(GradientRuns const& runs, FeatureRef const* features, Entry const& entry,
                       int32_t dim) {
  auto const place = runs.place_of(entry.item);
  auto const& feature = features[place.feature];
  auto const bytes = bytes_of(feature.row_type) * dim;
  auto const bag = bag_of(feature, place.position);
  prefetch_bytes(static_cast<char const*>(feature.rows) + bag * bytes, bytes);
}

// A buffer of the calling thread, at least `dim` floats, kept between rows.
float* row_buffer(int32_t dim) {
  thread_local std::vector<float> buffer;
  if (buffer.size() < size_t(dim)) buffer.resize(size_t(dim));
  return buffer.data();
}

}  // namespace

void update(UpdateArgs const& args, ThreadPool const& pool) {
  Optimizer optimizers[kMaxTables];
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const count = args.tables[t].counters[kStep] + 1;
    set_in_each_row(args.tables[t], kStep, count);
    optimizers[t] = make_optimizer(args.optimizers[t], args.hyper + t * kNumHyperParameters, count);
  }
  GradientRuns runs(args.tables, args.num_tables, args.features, args.num_features, true, pool);
  auto const ahead = [&](int32_t t, int64_t slot, Entry const& entry) {
    prefetch_row(args.tables[t], slot);
    prefetch_states(args.tables[t], slot);
    prefetch_gradient(runs, args.features, entry, args.tables[t].dim);
  };
  auto const step = [&](int32_t t, int64_t slot, Entry const* first, Entry const* last) {
    auto const& table = args.tables[t];
    auto* const sum = row_buffer(table.dim);
    sum_run(runs, args.features, first, last, table.dim, sum);
    with_value_type(table.value_type, [&](auto zero) {
      update_row<ScalarGroup, decltype(zero)>(ScalarGroup{}, table, optimizers[t], slot, sum);
    });
  };
  runs.for_each_run(pool, ahead, step);
}

void reduce(ReduceArgs const& args, ThreadPool const& pool) {
  std::vector<int64_t> first_of_table(size_t(args.num_tables), 0);
  std::vector<int64_t> first_of_feature(size_t(args.num_features), 0);
  for (int32_t f = 0; f < args.num_features; ++f) {
    auto& next = first_of_table[size_t(args.features[f].table)];
    first_of_feature[size_t(f)] = next;
    next += args.features[f].num_ids;
  }
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const& table = args.tables[t];
    if (args.counts_step != 0) set_in_each_row(table, kStep, table.counters[kStep] + 1);
    std::fill_n(args.unique_slots[t], args.capacities[t], -1);
    std::fill_n(args.gradients[t], args.capacities[t] * table.dim, 0.0f);
  }
  GradientRuns runs(args.tables, args.num_tables, args.features, args.num_features,
                    args.counts_step != 0, pool);
  auto const ahead = [&](int32_t t, int64_t, Entry const& entry) {
    prefetch_gradient(runs, args.features, entry, args.tables[t].dim);
  };
  runs.for_each_run(
      pool, ahead, [&](int32_t t, int64_t slot, Entry const* first, Entry const* last) {
        // A row's sum stands where the row first occurs, whatever its slot.
        auto const place = runs.place_of(first->item);
        auto const index = first_of_feature[size_t(place.feature)] + place.position;
        auto const dim = args.tables[t].dim;
        args.unique_slots[t][index] = static_cast<int32_t>(slot);
        sum_run(runs, args.features, first, last, dim, args.gradients[t] + index * dim);
      });
}

}  // namespace dynemb::cpu
