// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/tier_reader.h: the buffers of tiered tables, which several handlers read.
#pragma once

#include "core/tiers/record.h"
#include "core/tiers/tier_args.h"
#include "xla_ffi/buffers.h"
#include "xla_ffi/limits.h"
#include "xla_ffi/tables.h"

namespace dynemb {

// Describes table `number` of a call.
struct CallTable {
  TableAttrs const& attrs;
  int32_t number;

  int64_t const* fields() const { return attrs.tables.begin() + number * kNumTableFields; }
};

// Reads the arrays of a tiered table in the order that all calls have.
class TierReader {
 public:
  TierReader(BufferReader& reader, CallTable const& of, TableRef& table, TierRef& tier)
      : reader_(reader), fields_(of.fields()), table_(table), tier_(tier) {
    describe_table(of.attrs, of.number, table);
    table.num_buckets = static_cast<uint64_t>(fields_[kTableNumBuckets]);
    table.local_buckets = fields_[kTableLocalBuckets];
    reader.sizes().set(kBuckets, table.local_buckets);
    reader.sizes().set(kTierSlots, table.local_buckets * kBucketCapacity);
  }

  void index() {
    auto const index = reader_.next_arg(BufferRule::kIndex);
    check_bucket(reader_, index, fields_);
    table_.index = data<uint8_t>(index);
  }

  void counters(bool changes = false) {
    auto const counters = next(BufferRule::kCounters, changes);
    table_.counters = data<uint64_t>(counters);
    table_.counter_rows = static_cast<int32_t>(dimension(counters, 0));
    reader_.expect(table_.counter_rows > 0, "a table must have rows of counters");
  }

  void places(bool changes) {
    tier_.location = data<uint32_t>(next(BufferRule::kLocation, changes));
    owners(changes);
  }

  void owners(bool changes) {
    auto const owners = next(BufferRule::kOwners, changes);
    tier_.owners = data<uint32_t>(owners);
    tier_.frames = static_cast<int32_t>(dimension(owners, 1));
  }

  void rows(bool changes, bool with_states = true) {
    auto& sizes = reader_.sizes();
    auto const values = next(BufferRule::kValues, changes);
    take_values(table_, values);
    table_.num_states = with_states ? static_cast<int32_t>(fields_[kTableNumStates]) : 0;
    for (int s = 0; s < table_.num_states; ++s) {
      take_state(table_, s, next(BufferRule::kState, changes));
    }
    reader_.expect(table_.half_states == 0, "a tiered table has states of 32 bits");
    num_rows_ = dimension(values, 0);
    sizes.set(kArraySlots, num_rows_);
  }

  void events() {
    tier_.counters = data<uint64_t>(reader_.next_aliased(BufferRule::kTierCounters));
  }

  // Home records come after the rows. With `whole` the record must be that of the table's row and
  // states.
  void homes(bool whole = true) {
    auto const homes = reader_.next_arg(BufferRule::kHomes);
    tier_.homes = data<uint8_t>(homes);
    tier_.record_bytes = 4 * dimension(homes, 1);
    auto const least = record_bytes_of(table_);
    reader_.expect(whole ? tier_.record_bytes == least
                         : tier_.record_bytes >= least && tier_.record_bytes % 16 == 0,
                   "a home record must hold a row and its states");
    auto const spill = num_rows_ - table_.local_buckets * tier_.frames;
    tier_.spill_rows = static_cast<int32_t>(spill);
    reader_.expect(spill > 0 && spill <= kMostInt32, "the arrays must have spill rows");
    reader_.expect(num_rows_ + table_.local_buckets * kBucketCapacity < kMostInt32,
                   "rows and slots of a shard must be fewer than 2^31 together");
    reader_.sizes().set(kSpillRows, spill);
  }

  int64_t num_rows() const { return num_rows_; }

 private:
  ffi::AnyBuffer next(BufferRule rule, bool changes) {
    return changes ? reader_.next_aliased(rule) : reader_.next_arg(rule);
  }

  BufferReader& reader_;
  int64_t const* fields_;
  TableRef& table_;
  TierRef& tier_;
  int64_t num_rows_ = 0;
};

// Calls read(table, its CallTable) for each table of a call.
template <class Args, class Read>
void read_each(BufferReader& reader, TableAttrs const& attrs, Args& args, Read const& read) {
  args.num_tables = 0;
  if (!check_tables(reader, attrs)) return;
  auto const count = count_rows(attrs.tables, kNumTableFields);
  if (!reader.expect(count <= kMaxTierTables, "too many tiered tables in one call")) return;
  for (int32_t t = 0; t < count && !reader.failed(); ++t) {
    CallTable const of{attrs, t};
    reader.at("table ", t);
    reader.expect(of.fields()[kTablePart] == kWholeTable, "the call is about whole tables");
    reader.expect(t == 0 || of.fields()[kTableShares] == 0, "a tiered table has its own arrays");
    reader.sizes().forget(kBuckets, kArraySlots, kDim, kCounterRows, kTierSlots, kFrames, kTierRows,
                          kRecordWords, kSpillRows, kNumSlots, kNumBags);
    args.tables[t] = {};
    read(args.tables[t], of);
    args.num_tables = t + 1;
  }
}

// Reads a list of slots and one of rows, side by side. Returns how many there are.
inline int64_t read_list(BufferReader& reader, int32_t const*& slots, int32_t const*& rows) {
  reader.sizes().forget(kNumSlots);
  auto const first = reader.next_arg(BufferRule::kSlotsOfRows);
  slots = data<int32_t>(first);
  rows = data<int32_t>(reader.next_arg(BufferRule::kRowNumbers));
  return static_cast<int64_t>(first.element_count());
}

}  // namespace dynemb
