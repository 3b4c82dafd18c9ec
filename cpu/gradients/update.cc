// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/gradients/update.cc: gradients are summed row by row; then one optimizer step for each row,
// or the sums.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "core/group.h"
#include "core/row.h"
#include "cpu/gradients/any_optimizer.h"
#include "cpu/gradients/partition_rows.h"
#include "cpu/gradients/partitions.h"
#include "cpu/gradients/row_gradients.h"
#include "cpu/gradients/types.h"
#include "cpu/gradients/update_row.h"
#include "cpu/loops/isa.h"
#include "cpu/loops/row_ops.h"
#include "cpu/table_ops.h"

namespace dynemb::cpu {
namespace {

template <class Body>
void for_each_partition_of(Gradients const& gradients, ThreadPool const& pool, Body const& body) {
  GradientPartitions partitions(gradients, pool.num_threads);
  auto const deal = [&](int64_t piece) { partitions.deal(piece); };
  auto const use = [&](int64_t partition) {
    auto& rows = PartitionRows::of_this_thread();
    rows.load(partitions, partition);
    if (rows.size() > 0) body(partitions, partition, rows);
  };
  for_each_chunk_twice(pool, partitions.num_pieces(), deal, partitions.num_partitions(), use);
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

// Calls body(partitions, partition, rows) for each partition that has rows, `rows` being its rows.
// With many tables a thread does all of one: it waits for no other, and finds what it has dealt in
// its own caches.
template <class Body>
void for_each_partition(Gradients const& gradients, ThreadPool const& all, Body const& body) {
  auto const& pool = threads_for(gradients.features, gradients.num_features, all);
  if (!is_by_table(gradients, pool)) {
    return for_each_partition_of(gradients, pool, body);
  }
  for_each_chunk(pool, gradients.end_table - gradients.first_table, [&](int64_t place) {
    auto one = gradients;
    one.first_table += static_cast<int32_t>(place);
    one.end_table = one.first_table + 1;
    ThreadPool const alone;
    for_each_partition_of(one, alone, body);
  });
}

template <Cache cache>
void prefetch_rows(TableRef const& table, PartitionRows const& rows, int64_t first_slot,
                   size_t begin, size_t end) {
  auto const bytes = bytes_of(table.value_type) * table.dim;
  with_prefetch<cache>(bytes, [&](auto const& prefetch) {
    auto const* const first = static_cast<char const*>(table.values) + first_slot * bytes;
    for (auto row = begin; row < end; ++row) prefetch(first + rows.slot(row) * bytes);
  });
  if (table.rounds_stochastically != 0) {
    for (auto row = begin; row < end; ++row) {
      auto const slot = static_cast<int32_t>(first_slot + rows.slot(row));
      prefetch_bytes<cache>(rounding_key_at(table, slot), sizeof(Key));
    }
  }
  if (table.num_states == 0) return;
  for (auto row = begin; row < end; ++row) {
    prefetch_states<cache>(table, first_slot + rows.slot(row));
  }
}

// How many turns before its own a row is prefetched: a miss takes longer than one turn.
constexpr size_t kTurnsAhead = 4;

// Rows of one line: the first cache has room for those of some turns, so the second needs no visit.
bool are_narrow(TableRef const& table) {
  constexpr int64_t kLine = 64;
  return table.dim * bytes_of(table.value_type) <= kLine;
}

struct OptimizerOfTable {
  Optimizer const* tuned;
  AnyOptimizer const* any;  // or null
};

// Rows are updated some at a time: what one waits for, a sum, a square root or a division, is not
// what the next one waits for. Meanwhile the next ones are on their way to the first cache, and
// those after them to the second, or to the first one, too, if rows are narrow.
template <class V, class Gradients>
void update_partition(Gradients const& gradients, TableRef const& table,
                      OptimizerOfTable const& optimizer, int64_t first_slot,
                      std::vector<float>& sums) {
  auto const& rows = gradients.rows();
  uint64_t skipped = 0;
  auto const most = sums.size() / size_t(table.dim);
  auto const end_from = [&](size_t begin) { return std::min(begin + most, rows.size()); };
  auto const prefetch = [&](auto cache, size_t begin) {
    constexpr auto kCache = decltype(cache)::value;
    prefetch_rows<kCache>(table, rows, first_slot, begin, end_from(begin));
    gradients.template prefetch<kCache>(begin, end_from(begin));
  };
  std::integral_constant<Cache, Cache::kFirst> const first;
  std::integral_constant<Cache, Cache::kSecond> const second;
  auto const is_narrow = are_narrow(table);
  auto const prefetch_far = [&](size_t begin) {
    is_narrow ? prefetch(first, begin) : prefetch(second, begin);
  };
  for (size_t turn = 0; turn < kTurnsAhead; ++turn) prefetch_far(turn * most);
  if (!is_narrow) prefetch(first, 0);
  for (size_t begin = 0; begin < rows.size(); begin += most) {
    auto const count = end_from(begin) - begin;
    prefetch_far(begin + kTurnsAhead * most);
    if (!is_narrow) prefetch(first, begin + count);
    RowUpdates updates;
    updates.count = static_cast<int>(count);
    for (size_t i = 0; i < count; ++i) {
      updates.gradients[i] = gradients.sum_of(begin + i, sums.data() + i * size_t(table.dim));
      updates.slots[i] = first_slot + rows.slot(begin + i);
    }
    auto const some = optimizer.any != nullptr ? update_by_any(table, *optimizer.any, updates)
                                               : update_rows<V>(table, *optimizer.tuned, updates);
    skipped += static_cast<uint64_t>(some);
  }
  if (skipped > 0) fetch_add(table.counters + kNonfinite, skipped);
}

// Calls body(gradients) with the RowGradients of a partition that `rows` has loaded; `dim` is the
// width of its table.
template <class Body>
void with_gradients(GradientTypes const& types, GradientPartitions const& partitions,
                    int64_t partition, PartitionRows& rows, int32_t dim, Body const& body) {
  with_value_type(types.type_of(partitions.table_of(partition)), [&](auto zero) {
    with_isa([&](auto isa) {
      using Gradients = RowGradients<decltype(isa)::value, decltype(zero)>;
      body(Gradients(partitions, partition, rows, types.features(), dim));
    });
  });
}

// Room for the sums of some rows: few where rows are wide, so that they stay in the first cache.
size_t sums_of(TableRef const& table) {
  constexpr size_t kFloats = 2048;
  auto const dim = size_t(table.dim);
  return dim * std::clamp<size_t>(kFloats / dim, 1, kRowsTogether);
}

// Weights belong to positions, all else to rows and bags.
bool any_weights(UpdateArgs const& args) {
  return std::any_of(args.features, args.features + args.num_features,
                     [](FeatureRef const& feature) { return feature.weights != nullptr; });
}

void update_kinds(UpdateArgs const& args, ThreadPool const& pool, bool by_any) {
  Optimizer tuned[kMaxTables];
  std::vector<AnyOptimizer> any(size_t(args.num_tables));
  auto const is_tuned = [&](int32_t t) {  // other tuned loops round to nearest only
    return !by_any && (args.tables[t].rounds_stochastically == 0 || is_rowwise(args.optimizers[t]));
  };
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const* const stamp = args.stamps == nullptr ? nullptr : args.stamps + t;
    auto const kind = args.optimizers[t];
    auto const count = next_step(args.tables[t], stamp);
    set_in_each_row(args.tables[t], kStep, count);
    auto const* const hyper = args.hyper + t * (by_any ? int{kNumAnyHyper} : kNumHyperParameters);
    if (is_tuned(t)) {
      tuned[t] = make_optimizer(kind, hyper, count);
    } else {
      any[size_t(t)] =
          by_any ? prepare_optimizer(kind, hyper, count) : as_any_optimizer(kind, hyper, count);
    }
  }
  GradientTypes const types(args.tables, args.num_tables, args.features, args.num_features);
  Gradients const gradients{
      args.tables, 0,    args.num_tables,  types.features(), args.num_features,
      args.stamps, true, any_weights(args)};
  for_each_partition(gradients, pool, [&](auto const& partitions, int64_t partition, auto& rows) {
    auto const t = partitions.table_of(partition);
    auto const& table = args.tables[t];
    OptimizerOfTable const optimizer{tuned + t, is_tuned(t) ? nullptr : &any[size_t(t)]};
    std::vector<float> sums(sums_of(table));
    auto const first_slot = partitions.first_slot(partition);
    with_value_type(table.value_type, [&](auto stored) {
      with_gradients(types, partitions, partition, rows, table.dim, [&](auto const& gradients) {
        update_partition<decltype(stored)>(gradients, table, optimizer, first_slot, sums);
      });
    });
  });
}

}  // namespace

void update(UpdateArgs const& args, ThreadPool const& pool) { update_kinds(args, pool, false); }

void update_any(UpdateArgs const& args, ThreadPool const& pool) { update_kinds(args, pool, true); }

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
    auto const* const stamp = args.stamps == nullptr ? nullptr : args.stamps + t;
    if (args.counts_step != 0) set_in_each_row(table, kStep, next_step(table, stamp));
    if (sums.unique_slots == nullptr) continue;
    std::fill_n(sums.unique_slots, sums.capacity, -1);
    std::fill_n(static_cast<float*>(sums.rows), sums.capacity * table.dim, 0.0f);
  }
  // A row's sum stands where the row first occurs, whatever its slot; or in its slot's place.
  auto const index_of = [&](RowSums const& sums, FirstOfRow const& first, int32_t slot) {
    if (sums.unique_slots == nullptr) return int64_t{slot};
    auto const index = first_of_feature[first.feature] + first.position;
    sums.unique_slots[index] = slot;
    return index;
  };
  GradientTypes const types(args.tables, args.num_tables, args.features, args.num_features);
  Gradients const gradients{args.tables,       0,           args.num_tables,       types.features(),
                            args.num_features, args.stamps, args.counts_step != 0, true};
  for_each_partition(gradients, pool, [&](auto const& partitions, int64_t partition, auto& rows) {
    auto const t = partitions.table_of(partition);
    auto const& sums = args.sums[t];
    auto const dim = args.tables[t].dim;
    auto const first_slot = static_cast<int32_t>(partitions.first_slot(partition));
    std::vector<float> buffer(static_cast<size_t>(dim));
    with_gradients(types, partitions, partition, rows, dim, [&](auto const& gradients) {
      for (size_t row = 0; row < rows.size(); ++row) {
        auto const slot = first_slot + static_cast<int32_t>(rows.slot(row));
        auto const index = index_of(sums, rows.first(row), slot);
        auto const far = row + kTurnsAhead * kRowsTogether, near = row + kRowsTogether;
        gradients.template prefetch<Cache::kSecond>(far, far + 1);
        gradients.template prefetch<Cache::kFirst>(near, near + 1);
        auto const* const sum = gradients.sum_of(row, buffer.data());
        with_value_type(sums.row_type, [&](auto zero) {
          auto* const out = static_cast<decltype(zero)*>(sums.rows);
          copy_row<gradients.kIsa>(sum, dim, out + row_offset(sums.places, index, dim), false);
        });
      }
    });
  });
}

}  // namespace dynemb::cpu
