// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/table/rows.cc: rows, states and scores of given slots, read and written.
#include <algorithm>

#include "core/group.h"
#include "core/last_writer.h"
#include "core/row.h"
#include "core/slot.h"
#include "core/stochastic.h"
#include "cpu/loops/buffer.h"
#include "cpu/table_ops.h"

namespace dynemb::cpu {
namespace {

constexpr int64_t kSlotsPerChunk = 256;

template <class V>
void read_row(RowsArgs const& args, int64_t i, V const* row) {
  auto* const out = args.values + i * args.table.dim;
  for (int32_t c = 0; c < args.table.dim; ++c) out[c] = row == nullptr ? 0.0f : to_float(row[c]);
}

void read_state(RowsArgs const& args, int64_t i, int32_t slot, bool live, int s) {
  auto const& table = args.table;
  auto const width = table.state_width[s];
  auto* const out = args.states[s] + i * width;
  if (!live) {
    std::fill_n(out, width, 0.0f);
  } else if (has_unwritten_states(table, slot)) {
    std::fill_n(out, width, table.state_initial[s]);
  } else if (is_half_state(table, s)) {
    auto const* const from = half_state_at(table, s, slot);
    for (int32_t c = 0; c < width; ++c) out[c] = to_float(from[c]);
  } else {
    std::copy_n(state_at(table, s, slot), width, out);
  }
}

template <class V>
void gather_one(RowsArgs const& args, int64_t i) {
  auto const& table = args.table;
  auto const slot = args.slots[i];
  auto const live = is_live(slot, num_slots(table));
  if (args.values != nullptr) read_row<V>(args, i, live ? row_at<V>(table, slot) : nullptr);
  for (int s = 0; s < table.num_states; ++s) {
    if (args.states[s] != nullptr) read_state(args, i, slot, live, s);
  }
  if (args.scores != nullptr) args.scores[i] = live ? seen_score(table, slot) : 0;
}

template <class V>
void round_row(TableRef const& table, int32_t slot, float const* from, V* row) {
  auto const seed = rounding_seed(table.counters);
  auto const key = *rounding_key_at(table, slot);
  for (int32_t column = 0; column < table.dim; column += 4) {
    uint32_t random[4];
    rounding_bits(seed, key, static_cast<uint32_t>(column) / 4, random);
    for (int i = 0; i < 4 && column + i < table.dim; ++i) {
      round_stochastically(from[column + i], random[i], row + column + i);
    }
  }
}

template <>
void round_row(TableRef const& table, int32_t, float const* from, float* row) {
  std::copy_n(from, table.dim, row);
}

template <class V>
void write_values(RowsArgs const& args, int64_t i, int32_t slot) {
  auto const& table = args.table;
  auto const* const from = args.values + i * table.dim;
  auto* const row = row_at<V>(table, slot);
  if (args.rounds != 0) return round_row(table, slot, from, row);
  for (int32_t c = 0; c < table.dim; ++c) from_float(from[c], row + c);
}

void write_states(RowsArgs const& args, int64_t i, int32_t slot) {
  auto const& table = args.table;
  auto const given = std::any_of(args.states, args.states + table.num_states,
                                 [](float const* state) { return state != nullptr; });
  // The states that are not given lose their mark with the first.
  if (given && has_unwritten_states(table, slot)) initialize_states(ScalarGroup{}, table, slot);
  for (int s = 0; s < table.num_states; ++s) {
    if (args.states[s] == nullptr) continue;
    auto const width = table.state_width[s];
    auto const* const from = args.states[s] + i * width;
    if (is_half_state(table, s)) {
      for (int32_t c = 0; c < width; ++c) from_float(from[c], half_state_at(table, s, slot) + c);
    } else {
      std::copy_n(from, width, state_at(table, s, slot));
    }
  }
}

template <class V>
void scatter_one(RowsArgs const& args, LastWriters const& writers, int64_t i) {
  auto const& table = args.table;
  auto const slot = args.slots[i];
  if (!is_live(slot, num_slots(table))) return;
  if (writers.entries != nullptr && !is_last_writer(writers, slot, i)) return;
  if (args.values != nullptr) write_values<V>(args, i, slot);
  write_states(args, i, slot);
  if (args.scores != nullptr) bring_score(table, slot, args.scores[i]);
}

void write_rows(RowsArgs const& args, LastWriters const& writers, ThreadPool const& pool) {
  with_value_type(args.table.value_type, [&](auto zero) {
    using V = decltype(zero);
    for_each_range(pool, args.num_slots, kSlotsPerChunk, [&](int64_t begin, int64_t end) {
      for (auto i = begin; i < end; ++i) scatter_one<V>(args, writers, i);
    });
  });
}

void note_writers(RowsArgs const& args, LastWriters const& writers, ThreadPool const& pool) {
  constexpr int64_t kGrain = 1 << 14;
  auto const limit = num_slots(args.table);
  for_each_range(pool, static_cast<int64_t>(writers.mask + 1), kGrain,
                 [&](int64_t begin, int64_t end) {
                   std::fill(writers.entries + begin, writers.entries + end, 0);
                 });
  for_each_range(pool, args.num_slots, kGrain, [&](int64_t begin, int64_t end) {
    for (auto i = begin; i < end; ++i) {
      if (is_live(args.slots[i], limit)) note_writer(writers, args.slots[i], i);
    }
  });
}

}  // namespace

void gather(RowsArgs const& args, ThreadPool const& pool) {
  with_value_type(args.table.value_type, [&](auto zero) {
    using V = decltype(zero);
    for_each_range(pool, args.num_slots, kSlotsPerChunk, [&](int64_t begin, int64_t end) {
      for (auto i = begin; i < end; ++i) gather_one<V>(args, i);
    });
  });
}

void scatter(RowsArgs const& args, ThreadPool const& pool) {
  if (args.last_wins == 0) return write_rows(args, {nullptr, 0}, pool);
  auto const count = LastWriters::entries_for(args.num_slots);
  Buffer<uint64_t> entries(count);
  auto const writers = LastWriters{entries.data(), count - 1};
  note_writers(args, writers, pool);
  write_rows(args, writers, pool);
}

}  // namespace dynemb::cpu
