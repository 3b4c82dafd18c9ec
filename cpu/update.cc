// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/update.cc: gradients are summed row by row; then one optimizer step for each row, or the
// sums.
#include <algorithm>
#include <vector>

#include "core/group.h"
#include "core/row.h"
#include "cpu/gradient_runs.h"
#include "cpu/isa.h"
#include "cpu/partition_rows.h"
#include "cpu/row_ops.h"
#include "cpu/row_sums.h"
#include "cpu/table_ops.h"
#include "cpu/update_row.h"

namespace dynemb::cpu {
namespace {

constexpr size_t kRowsAhead = 8;        // rows and states on their way
constexpr size_t kGradientsAhead = 12;  // gradients on their way

// The gradients of the rows of one partition.
template <Isa isa>
struct RowGradients {
  PartitionRows const& rows;
  FeatureRef const* features;
  int32_t dim;

  // The sum for one row, in order of position: in `sum`, or the only gradient where it lies.
  float const* sum_of(size_t row, float* sum) const {
    auto const begin = rows.begin(row), end = rows.end(row);
    auto const& first = rows.entry(begin);
    if (end - begin == 1 && factor_of(first) == 1.0f &&
        features[first.feature].row_type == ValueType::kFloat32) {
      prefetch(begin + kGradientsAhead);
      return gradient_of<float>(first);
    }
    std::fill(sum, sum + dim, 0.0f);
    for (auto next = begin; next < end;) {
      with_value_type(features[rows.entry(next).feature].row_type,
                      [&](auto zero) { next = add_some<decltype(zero)>(next, end, sum); });
    }
    return sum;
  }

 private:
  void prefetch(size_t i) const {
    auto const& entry = rows.entry(std::min(i, rows.num_entries() - 1));
    auto const bytes = bytes_of(features[entry.feature].row_type) * dim;
    prefetch_bytes(gradient_of<char>(entry, bytes), bytes);
  }

  float factor_of(Entry const& entry) const {
    return gradient_factor(features[entry.feature], entry.bag, entry.position);
  }

  template <class T>
  T const* gradient_of(Entry const& entry) const {
    return gradient_of<T>(entry, dim);
  }
  template <class T>
  T const* gradient_of(Entry const& entry, int64_t width) const {
    return static_cast<T const*>(features[entry.feature].rows) + int64_t{entry.bag} * width;
  }

  // Adds some gradients of one type; returns the first entry that is left.
  template <class T>
  uint32_t add_some(uint32_t begin, uint32_t end, float* sum) const {
    T const* gradients[kRowsAtOnce];
    float factors[kRowsAtOnce];
    auto const type = features[rows.entry(begin).feature].row_type;
    int count = 0;
    for (auto i = begin; i < end && count < kRowsAtOnce; ++i, ++count) {
      auto const& entry = rows.entry(i);
      if (features[entry.feature].row_type != type) break;
      prefetch(i + kGradientsAhead);
      gradients[count] = gradient_of<T>(entry);
      factors[count] = factor_of(entry);
    }
    add_rows<isa>(gradients, factors, count, dim, sum);
    return begin + static_cast<uint32_t>(count);
  }
};

// Calls body(isa, rows) for each partition that has rows, `rows` being its rows.
template <class Body>
void for_each_partition(GradientRuns const& runs, ThreadPool const& pool, Body const& body) {
  for_each_chunk(pool, runs.num_partitions(), [&](int64_t partition) {
    auto& rows = PartitionRows::of_this_thread();
    rows.load(runs, partition);
    if (rows.size() > 0) body(partition, rows);
  });
}

template <class V, Isa isa>
void update_partition(RowGradients<isa> const& gradients, TableRef const& table,
                      Optimizer const& optimizer, int64_t first_slot, float* sum) {
  auto const& rows = gradients.rows;
  auto const slot_of = [&](size_t row) { return first_slot + rows.slot(row); };
  for (size_t row = 0; row < rows.size(); ++row) {
    auto const later = slot_of(std::min(row + kRowsAhead, rows.size() - 1));
    prefetch_row(table, later);
    prefetch_states(table, later);
    auto const* const gradient = gradients.sum_of(row, sum);
    auto const slot = slot_of(row);
    if (has_unwritten_states(table, slot)) initialize_states(ScalarGroup{}, table, slot);
    update_row<V>(table, optimizer, slot, gradient);
  }
}

}  // namespace

void update(UpdateArgs const& args, ThreadPool const& pool) {
  Optimizer optimizers[kMaxTables];
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const count = args.tables[t].counters[kStep] + 1;
    set_in_each_row(args.tables[t], kStep, count);
    optimizers[t] = make_optimizer(args.optimizers[t], args.hyper + t * kNumHyperParameters, count);
  }
  GradientRuns const runs({args.tables, args.num_tables, args.features, args.num_features, true},
                          pool);
  for_each_partition(runs, pool, [&](int64_t partition, PartitionRows const& rows) {
    auto const t = runs.table_of(partition);
    auto const& table = args.tables[t];
    std::vector<float> sum(size_t(table.dim));
    with_value_type(table.value_type, [&](auto zero) {
      with_isa([&](auto isa) {
        RowGradients<decltype(isa)::value> const gradients{rows, args.features, table.dim};
        update_partition<decltype(zero)>(gradients, table, optimizers[t],
                                         runs.first_slot(partition), sum.data());
      });
    });
  });
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
  GradientRuns const runs(
      {args.tables, args.num_tables, args.features, args.num_features, args.counts_step != 0},
      pool);
  for_each_partition(runs, pool, [&](int64_t partition, PartitionRows const& rows) {
    auto const t = runs.table_of(partition);
    auto const dim = args.tables[t].dim;
    with_isa([&](auto isa) {
      RowGradients<decltype(isa)::value> const gradients{rows, args.features, dim};
      for (size_t row = 0; row < rows.size(); ++row) {
        // A row's sum stands where the row first occurs, whatever its slot.
        auto const& first = rows.entry(rows.begin(row));
        auto const index = first_of_feature[first.feature] + first.position;
        auto* const out = args.gradients[t] + index * dim;
        args.unique_slots[t][index] =
            static_cast<int32_t>(runs.first_slot(partition)) + static_cast<int32_t>(rows.slot(row));
        auto const* const sum = gradients.sum_of(row, out);
        if (sum != out) std::copy(sum, sum + dim, out);
      }
    });
  });
}

}  // namespace dynemb::cpu
