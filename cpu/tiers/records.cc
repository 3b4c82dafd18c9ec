// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tiers/records.cc: rows to their home records, and rows of slots wherever they lie.
#include <algorithm>
#include <cstring>

#include "core/slot.h"
#include "core/tiers/tier_args.h"
#include "cpu/table_ops.h"
#include "cpu/tiers/move_row.h"

namespace dynemb::cpu {
namespace {

constexpr int64_t kRowsPerChunk = 128;

void clear_row(TableRef const& table, int64_t row) {
  memset(row_bytes_at(table, row), 0, size_t(row_bytes_of(table)));
  for (int s = 0; s < table.num_states; ++s) {
    memset(state_at(table, s, row), 0, state_bytes(table, s));
  }
}

// A list of slots and one of rows; those that the table does not have are passed over.
struct Pairs {
  int32_t const* slots;
  int32_t const* rows;
  int64_t count;
  int64_t num_slots;
  int64_t num_rows;

  bool has(int64_t i) const {
    return i < count && is_live(slots[i], static_cast<uint32_t>(num_slots)) &&
           is_live(rows[i], static_cast<uint32_t>(num_rows));
  }
};

// Calls each(table, its pairs, begin, end) for parts of the lists of all tables, in one loop: a
// loop for each table would wake the other threads as often, and each wait for the slowest.
template <class Args, class PairsOf, class Each>
void for_each_part(Args const& args, ThreadPool const& pool, PairsOf const& pairs_of,
                   Each const& each) {
  Pairs pairs[kMaxTierTables];
  int64_t first[kMaxTierTables + 1] = {0};  // part of each table
  for (int32_t t = 0; t < args.num_tables; ++t) {
    pairs[t] = pairs_of(args.tables[t]);
    first[t + 1] = first[t] + (pairs[t].count + kRowsPerChunk - 1) / kRowsPerChunk;
  }
  for_each_chunk(pool, first[args.num_tables], [&](int64_t part) {
    auto const t = std::upper_bound(first + 1, first + args.num_tables, part) - first - 1;
    auto const begin = (part - first[t]) * kRowsPerChunk;
    each(args.tables[t], pairs[t], begin, std::min(begin + kRowsPerChunk, pairs[t].count));
  });
}

// Calls move(slot, row) for the pairs of a part; before it look(slot, row), some pairs ahead.
template <class Look, class Move>
void for_each_pair(Pairs const& pairs, int64_t begin, int64_t end, Look const& look,
                   Move const& move) {
  for (auto i = begin; i < end; ++i) {
    auto const ahead = i + kRowsAhead;
    if (pairs.has(ahead)) look(pairs.slots[ahead], pairs.rows[ahead]);
    if (pairs.has(i)) move(pairs.slots[i], pairs.rows[i]);
  }
}

Pairs leaving_pairs(WriteBackTable const& args) {
  auto const count = entries_of(args.counts, 0, args.count);
  return {args.slots, args.rows, count, args.num_slots, args.num_rows};
}

Pairs arriving_pairs(SettleTable const& args) {
  auto const count = entries_of(args.counts, 1, args.num_arriving);
  auto const num_slots = args.table.local_buckets * kBucketCapacity;
  return {args.arriving, args.into, count, num_slots, args.num_rows};
}

void write_rows(WriteBackTable const& args, Pairs const& pairs, int64_t begin, int64_t end) {
  auto const record = [&](int32_t slot) { return args.homes + slot * args.record_bytes; };
  for_each_pair(
      pairs, begin, end,
      [&](int32_t slot, int32_t row) {
        prefetch_row<0>(args.table, row);
        prefetch_bytes<1>(record(slot), args.record_bytes);
      },
      [&](int32_t slot, int32_t row) { record_from_row(args.table, row, record(slot)); });
}

void bring_records(SettleTable const& args, Pairs const& pairs, int64_t begin, int64_t end) {
  for_each_pair(
      pairs, begin, end,
      [&](int32_t slot, int32_t row) {
        prefetch_bytes<0>(record_at(args.tier, slot), args.tier.record_bytes);
        prefetch_row<1>(args.table, row);
      },
      [&](int32_t slot, int32_t row) {
        row_from_record(args.table, record_at(args.tier, slot), row);
      });
}

}  // namespace

void write_back(WriteBackArgs const& args, ThreadPool const& pool) {
  for_each_part(args, pool, leaving_pairs, write_rows);
}

// Records come in settle, whose results the rows are.
void swap_rows(WriteBackArgs const& args, ThreadPool const& pool) { write_back(args, pool); }

void settle(SettleArgs const& args, ThreadPool const& pool) {
  for_each_part(args, pool, arriving_pairs, bring_records);
}

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
