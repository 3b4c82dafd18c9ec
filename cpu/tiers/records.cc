// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tiers/records.cc: rows to their home records, and rows of slots wherever they lie.
#include <cstring>

#include "core/slot.h"
#include "core/tiers/tier_args.h"
#include "cpu/table_ops.h"
#include "cpu/tiers/move_row.h"

namespace dynemb::cpu {
namespace {

constexpr int64_t kRowsPerChunk = 256;

void clear_row(TableRef const& table, int64_t row) {
  memset(row_bytes_at(table, row), 0, size_t(row_bytes_of(table)));
  for (int s = 0; s < table.num_states; ++s) {
    memset(state_at(table, s, row), 0, state_bytes(table, s));
  }
}

// Those of a list that the arrays have.
template <class Move>
void for_each_pair(WriteBackTable const& args, int32_t const* slots, int32_t const* rows,
                   int64_t count, ThreadPool const& pool, Move const& move) {
  auto const num_slots = static_cast<uint32_t>(args.num_slots);
  auto const num_rows = static_cast<uint32_t>(args.num_rows);
  for_each_range(pool, count, kRowsPerChunk, [&](int64_t begin, int64_t end) {
    for (auto i = begin; i < end; ++i) {
      if (is_live(slots[i], num_slots) && is_live(rows[i], num_rows)) move(slots[i], rows[i]);
    }
  });
}

void write_rows(WriteBackTable const& args, ThreadPool const& pool) {
  auto const count = entries_of(args.counts, 0, args.count);
  for_each_pair(args, args.slots, args.rows, count, pool, [&](int32_t slot, int32_t row) {
    record_from_row(args.table, row, args.homes + slot * args.record_bytes);
  });
}

void bring_records(WriteBackTable const& args, ThreadPool const& pool) {
  auto const count = entries_of(args.counts, 1, args.num_arriving);
  for_each_pair(args, args.arriving, args.into, count, pool, [&](int32_t slot, int32_t row) {
    row_from_record(args.table, args.homes + slot * args.record_bytes, row);
  });
}

}  // namespace

void write_back(WriteBackArgs const& args, ThreadPool const& pool) {
  for (int32_t t = 0; t < args.num_tables; ++t) write_rows(args.tables[t], pool);
}

void swap_rows(WriteBackArgs const& args, ThreadPool const& pool) {
  for (int32_t t = 0; t < args.num_tables; ++t) {
    write_rows(args.tables[t], pool);
    bring_records(args.tables[t], pool);
  }
}

void settle(SettleArgs const& /*args*/, ThreadPool const& /*pool*/) {}

void tier_gather(TierGatherArgs const& args, ThreadPool const& pool) {
  auto result = args.table;
  result.values = args.values;
  for (int s = 0; s < result.num_states; ++s) result.states[s] = args.states[s];
  for_each_range(pool, args.num_slots, kRowsPerChunk, [&](int64_t begin, int64_t end) {
    for (auto i = begin; i < end; ++i) {
      auto const slot = args.slots[i];
      if (!is_live(slot, num_slots(args.table))) {
        clear_row(result, i);
        continue;
      }
      auto const row = cached_row(args.tier, slot);
      if (row >= 0) {
        copy_row_between(args.table, row, result, i);
      } else {
        load_row(args.table, args.tier, slot, result, i);
      }
    }
  });
}

}  // namespace dynemb::cpu
