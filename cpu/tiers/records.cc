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

}  // namespace

void write_back(WriteBackArgs const& args, ThreadPool const& pool) {
  auto const slots = static_cast<uint32_t>(args.num_slots);
  auto const rows = static_cast<uint32_t>(args.num_rows);
  for_each_range(pool, args.count, kRowsPerChunk, [&](int64_t begin, int64_t end) {
    for (auto i = begin; i < end; ++i) {
      if (!is_live(args.slots[i], slots) || !is_live(args.rows[i], rows)) continue;
      record_from_row(args.table, args.rows[i], args.homes + args.slots[i] * args.record_bytes);
    }
  });
}

void swap_rows(WriteBackArgs const& args, ThreadPool const& pool) {
  write_back(args, pool);
  auto const slots = static_cast<uint32_t>(args.num_slots);
  auto const rows = static_cast<uint32_t>(args.num_rows);
  for_each_range(pool, args.num_arriving, kRowsPerChunk, [&](int64_t begin, int64_t end) {
    for (auto i = begin; i < end; ++i) {
      if (!is_live(args.arriving[i], slots) || !is_live(args.into[i], rows)) continue;
      row_from_record(args.table, args.homes + args.arriving[i] * args.record_bytes, args.into[i]);
    }
  });
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
