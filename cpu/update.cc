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
    with_value_type(features[entry.feature].row_type, [&](auto zero) {
      auto const* const gradient = gradient_of<decltype(zero)>(entry);
      prefetch_bytes(reinterpret_cast<char const*>(gradient), int64_t{dim} * int64_t{sizeof(zero)});
    });
  }

  float factor_of(Entry const& entry) const {
    return gradient_factor(features[entry.feature], entry.bag, entry.position);
  }

  template <class T>
  T const* gradient_of(Entry const& entry) const {
    auto const& feature = features[entry.feature];
    return static_cast<T const*>(feature.rows) + row_offset(feature.places, entry.bag, dim);
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

template <class Body>
void for_each_partition(GradientRuns const& runs, ThreadPool const& pool, Body const& body) {
  for_each_chunk(pool, runs.num_partitions(), [&](int64_t partition) {
    auto& rows = PartitionRows::of_this_thread();
    rows.load(runs, partition);
    if (rows.size() > 0) body(runs, partition, rows);
  });
}

// Whether threads take whole tables: these are many, and none has most of the work.
bool is_by_table(Gradients const& gradients, ThreadPool const& pool) {
  int64_t all = 0, most = 0;
  for (auto t = gradients.first_table; t < gradients.end_table; ++t) {
    int64_t ids = 0;
    for (int32_t f = 0; f < gradients.num_features; ++f) {
      if (gradients.features[f].table == t) ids += gradients.features[f].num_ids;
    }
    all += ids;
    most = std::max(most, ids);
  }
  return most * pool.num_threads * 4 <= all;
}

// Calls body(runs, partition, rows) for each partition that has rows, `rows` being its rows. With
// many tables a thread does all of one: it waits for no other, and finds what it has dealt in its
// own caches.
template <class Body>
void for_each_partition(Gradients const& gradients, ThreadPool const& pool, Body const& body) {
  if (!is_by_table(gradients, pool)) {
    return for_each_partition(GradientRuns(gradients, pool), pool, body);
  }
  for_each_chunk(pool, gradients.end_table - gradients.first_table, [&](int64_t place) {
    auto one = gradients;
    one.first_table += static_cast<int32_t>(place);
    one.end_table = one.first_table + 1;
    ThreadPool const alone;
    for_each_partition(GradientRuns(one, alone), alone, body);
  });
}

// Rows are updated some at a time: what one waits for, a sum, a square root or a division, is not
// what the next one waits for.
template <class V, Isa isa>
void update_partition(RowGradients<isa> const& gradients, TableRef const& table,
                      Optimizer const& optimizer, int64_t first_slot, std::vector<float>& sums) {
  auto const& rows = gradients.rows;
  auto const slot_of = [&](size_t row) { return first_slot + rows.slot(row); };
  float const* sum_of[kRowsTogether];
  int64_t slots[kRowsTogether];
  auto const most = sums.size() / size_t(table.dim);
  for (size_t begin = 0; begin < rows.size(); begin += most) {
    auto const count = std::min(most, rows.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      auto const later = slot_of(std::min(begin + i + kRowsAhead, rows.size() - 1));
      prefetch_row(table, later);
      prefetch_states(table, later);
      sum_of[i] = gradients.sum_of(begin + i, sums.data() + i * size_t(table.dim));
      slots[i] = slot_of(begin + i);
      if (has_unwritten_states(table, slots[i])) initialize_states(ScalarGroup{}, table, slots[i]);
    }
    update_rows<V>(table, optimizer, slots, sum_of, static_cast<int>(count));
  }
}

// Room for the sums of some rows: few where rows are wide, so that they stay in the first cache.
size_t sums_of(TableRef const& table) {
  constexpr size_t kFloats = 2048;
  auto const dim = size_t(table.dim);
  return dim * std::clamp<size_t>(kFloats / dim, 1, kRowsTogether);
}

}  // namespace

void update(UpdateArgs const& args, ThreadPool const& pool) {
  Optimizer optimizers[kMaxTables];
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const count = args.tables[t].counters[kStep] + 1;
    set_in_each_row(args.tables[t], kStep, count);
    optimizers[t] = make_optimizer(args.optimizers[t], args.hyper + t * kNumHyperParameters, count);
  }
  Gradients const gradients{args.tables,       0,   args.num_tables, args.features,
                            args.num_features, true};
  for_each_partition(gradients, pool, [&](auto const& runs, int64_t partition, auto const& rows) {
    auto const t = runs.table_of(partition);
    auto const& table = args.tables[t];
    std::vector<float> sums(sums_of(table));
    with_value_type(table.value_type, [&](auto zero) {
      with_isa([&](auto isa) {
        RowGradients<decltype(isa)::value> const gradients{rows, args.features, table.dim};
        update_partition<decltype(zero)>(gradients, table, optimizers[t],
                                         runs.first_slot(partition), sums);
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
    auto const& sums = args.sums[t];
    if (args.counts_step != 0) set_in_each_row(table, kStep, table.counters[kStep] + 1);
    if (sums.unique_slots == nullptr) continue;
    std::fill_n(sums.unique_slots, sums.capacity, -1);
    std::fill_n(static_cast<float*>(sums.rows), sums.capacity * table.dim, 0.0f);
  }
  // A row's sum stands where the row first occurs, whatever its slot; or in its slot's place.
  auto const index_of = [&](RowSums const& sums, Entry const& first, int32_t slot) {
    if (sums.unique_slots == nullptr) return int64_t{slot};
    auto const index = first_of_feature[first.feature] + first.position;
    sums.unique_slots[index] = slot;
    return index;
  };
  Gradients const gradients{
      args.tables, 0, args.num_tables, args.features, args.num_features, args.counts_step != 0};
  for_each_partition(gradients, pool, [&](auto const& runs, int64_t partition, auto const& rows) {
    auto const t = runs.table_of(partition);
    auto const& sums = args.sums[t];
    auto const dim = args.tables[t].dim;
    auto const first_slot = static_cast<int32_t>(runs.first_slot(partition));
    std::vector<float> buffer(static_cast<size_t>(dim));
    with_isa([&](auto isa) {
      RowGradients<decltype(isa)::value> const gradients{rows, args.features, dim};
      for (size_t row = 0; row < rows.size(); ++row) {
        auto const slot = first_slot + static_cast<int32_t>(rows.slot(row));
        auto const index = index_of(sums, rows.entry(rows.begin(row)), slot);
        auto const* const sum = gradients.sum_of(row, buffer.data());
        with_value_type(sums.row_type, [&](auto zero) {
          auto* const out = static_cast<decltype(zero)*>(sums.rows);
          copy_row(sum, dim, out + row_offset(sums.places, index, dim), false);
        });
      }
    });
  });
}

}  // namespace dynemb::cpu
