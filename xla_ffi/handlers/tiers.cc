// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/tiers.cc: operations on tiered tables; their buffers stand in
// docs/decisions/tiers.md.
#include <algorithm>

#include "core/tiers/tier_args.h"
#include "xla_ffi/features.h"
#include "xla_ffi/handlers/operation.h"
#include "xla_ffi/handlers/registrations.h"
#include "xla_ffi/handlers/tier_reader.h"
#include "xla_ffi/limits.h"

namespace dynemb {
namespace {

// promote and fetch take these before anything of their own.
template <class OfTable>
void read_moved(BufferReader& reader, CallTable const& of, OfTable& args) {
  TierReader tier(reader, of, args.table, args.tier);
  tier.index();
  tier.counters();
  tier.places(true);
  tier.rows(true);
  tier.events();
  tier.homes();
  auto const slots = reader.next_arg(BufferRule::kSlotsOfRows);
  args.slots = data<int32_t>(slots);
  args.num_ids = static_cast<int64_t>(slots.element_count());
  reader.expect(args.num_ids <= kMostIds, "a call has at most 2^30 - 1 ids");
}

// Scratch of a call of that shape, whose `ids` are those of each table, its frames and its spill
// rows.
template <class Args, size_t (*bytes_of)(Args const&)>
size_t scratch_of(CallShape const& shape) {
  Args args{};
  auto const tables = std::min(shape.buckets.size(), shape.ids.size() / 3);
  if (tables > kMaxTierTables) return 0;
  args.num_tables = static_cast<int32_t>(tables);
  for (size_t t = 0; t < tables; ++t) {
    auto& one = args.tables[t];
    one.table.local_buckets = shape.buckets[t];
    one.table.dim = shape.dims[t];
    one.num_ids = shape.ids[3 * t];
    one.tier.frames = static_cast<int32_t>(shape.ids[3 * t + 1]);
    one.tier.spill_rows = static_cast<int32_t>(shape.ids[3 * t + 2]);
  }
  return bytes_of(args);
}

struct Promote {
  static constexpr auto kTarget = "dynemb_promote";
  static constexpr auto kRun = &backend::promote;
  static auto bind() { return bind_table().Attr<int64_t>("purpose"); }

  PromoteArgs args;

  void read(BufferReader& reader, TableAttrs const& attrs, int64_t purpose) {
    read_each(reader, attrs, args, [&](PromoteTable& one, CallTable const& of) {
      one.purpose = purpose == 0 ? Promotion::kLookup : Promotion::kPrefetch;
      read_moved(reader, of, one);
      one.spilled = data<int32_t>(reader.next_ret(BufferRule::kSlotsOfRows));
      one.rows = data<int32_t>(reader.next_ret(BufferRule::kRowNumbers));
      one.arriving = data<int32_t>(reader.next_ret(BufferRule::kSlotsOfRows));
      one.into = data<int32_t>(reader.next_ret(BufferRule::kRowNumbers));
      one.counts = data<int32_t>(reader.next_ret(BufferRule::kListCounts));
    });
  }

  static size_t scratch_bytes(CallShape const& shape) {
    return scratch_of<PromoteArgs, backend::promote_scratch_bytes>(shape);
  }
};

struct Fetch {
  static constexpr auto kTarget = "dynemb_fetch";
  static constexpr auto kRun = &backend::fetch;
  static auto bind() { return bind_table().Attr<int64_t>("has_keys"); }

  FetchArgs args;

  void read(BufferReader& reader, TableAttrs const& attrs, int64_t has_keys) {
    auto const round = data<int32_t>(reader.next_arg(BufferRule::kRound));
    read_each(reader, attrs, args, [&](FetchTable& one, CallTable const& of) {
      read_moved(reader, of, one);
      if (has_keys != 0) one.keys = data<Key>(reader.next_arg(BufferRule::kKeysOfSlots));
      one.round = round;
      one.places = data<int32_t>(reader.next_ret(BufferRule::kSlotsOfRows));
      one.spilled = data<int32_t>(reader.next_ret(BufferRule::kSpilled));
      one.counts = data<int32_t>(reader.next_ret(BufferRule::kListCounts));
    });
  }

  static size_t scratch_bytes(CallShape const& shape) {
    return scratch_of<FetchArgs, backend::fetch_scratch_bytes>(shape);
  }
};

// write_back and swap_rows both take this.
void read_write_back(BufferReader& reader, CallTable const& of, WriteBackTable& args) {
  TierRef tier{};
  TierReader arrays(reader, of, args.table, tier);
  auto const homes = reader.next_aliased(BufferRule::kHomes);
  args.homes = data<uint8_t>(homes);
  args.num_slots = dimension(homes, 0);
  args.record_bytes = 4 * dimension(homes, 1);
  arrays.rows(false);
  args.num_rows = arrays.num_rows();
  reader.expect(args.record_bytes == record_bytes_of(args.table),
                "a home record must hold a row and its states");
  args.counts = data<int32_t>(reader.next_arg(BufferRule::kListCounts));
  args.count = read_list(reader, args.slots, args.rows);
}

struct WriteBack {
  static constexpr auto kTarget = "dynemb_write_back";
  static constexpr auto kRun = &backend::write_back;
  static constexpr bool kOnHost = true;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_table(); }

  WriteBackArgs args;

  void read(BufferReader& reader, TableAttrs const& attrs) {
    read_each(reader, attrs, args,
              [&](WriteBackTable& one, CallTable const& of) { read_write_back(reader, of, one); });
  }
};

struct SwapRows {
  static constexpr auto kTarget = "dynemb_swap_rows";
  static constexpr auto kRun = &backend::swap_rows;
  static constexpr bool kOnHost = true;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_table(); }

  WriteBackArgs args;

  void read(BufferReader& reader, TableAttrs const& attrs) {
    read_each(reader, attrs, args, [&](WriteBackTable& one, CallTable const& of) {
      read_write_back(reader, of, one);
      one.num_arriving = read_list(reader, one.arriving, one.into);
    });
  }
};

struct Settle {
  static constexpr auto kTarget = "dynemb_settle";
  static constexpr auto kRun = &backend::settle;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_table(); }

  SettleArgs args;

  void read(BufferReader& reader, TableAttrs const& attrs) {
    read_each(reader, attrs, args, [&](SettleTable& one, CallTable const& of) {
      TierReader arrays(reader, of, one.table, one.tier);
      arrays.rows(true);
      arrays.homes();
      one.num_rows = arrays.num_rows();
      one.counts = data<int32_t>(reader.next_arg(BufferRule::kListCounts));
      one.num_arriving = read_list(reader, one.arriving, one.into);
    });
  }
};

bool is_whole_table(BufferReader& reader, TableAttrs const& attrs) {
  return is_one_table(reader, attrs) &&
         reader.expect(attrs.tables[kTablePart] == kWholeTable, "the call is about a whole table");
}

struct Depart {
  static constexpr auto kTarget = "dynemb_depart";
  static constexpr auto kRun = &backend::depart;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_table(); }

  DepartArgs args{};

  void read(BufferReader& reader, TableAttrs const& attrs) {
    if (!is_whole_table(reader, attrs)) return;
    TierReader tier(reader, {attrs, 0}, args.table, args.tier);
    tier.counters();
    tier.owners(false);
    tier.rows(false);
    tier.events();
    tier.homes();
    args.departures = read_ring(reader.next_aliased(BufferRule::kRing));
    auto const records = reader.next_aliased(BufferRule::kDepartedRecords);
    args.records = data<uint8_t>(records);
    reader.expect(dimension(records, 0) == args.departures.room,
                  "a ring must have a record for each departure");
  }
};

struct TierRows {
  static constexpr auto kTarget = "dynemb_tier_rows";
  static constexpr auto kRun = &backend::tier_rows;
  static auto bind() { return bind_features().Attr<int64_t>("serves"); }

  TierRowsArgs args;

  void read(BufferReader& reader, TableAttrs const& attrs, IntAttr features, int64_t serves) {
    args.serves = serves != 0 ? 1 : 0;
    args.done = nullptr;
    TableRef tables[kMaxTierTables];
    read_each(reader, attrs, args, [&](TierRowsTable& one, CallTable const& of) {
      TierReader tier(reader, of, one.table, one.tier);
      tier.counters(serves == 0);
      tier.places(false);
      tier.rows(false, false);
      tier.homes(false);
      one.missing = serves != 0 ? one.table.eval_initializer : one.table.initializer;
      tables[of.number] = one.table;
    });
    if (reader.failed() || !reader.records(RecordRule::kFeatures, features)) return;
    args.num_features = count_rows(features, kNumFeatureFields);
    if (!reader.expect(args.num_features <= kMaxFeatures, "too many features in one call")) return;
    read_tier_rows(reader, {features, args.features, args.num_features, tables, args.num_tables});
    if (serves != 0) args.done = data<uint32_t>(reader.next_ret(BufferRule::kDone));
  }

  static constexpr auto& scratch_bytes = no_scratch;
};

struct TierGather {
  static constexpr auto kTarget = "dynemb_tier_gather";
  static constexpr auto kRun = &backend::tier_gather;
  static auto bind() { return bind_table(); }

  TierGatherArgs args{};

  void read(BufferReader& reader, TableAttrs const& attrs) {
    if (!is_whole_table(reader, attrs)) return;
    TierReader tier(reader, {attrs, 0}, args.table, args.tier);
    tier.index();
    tier.counters();
    tier.places(false);
    tier.rows(false);
    tier.homes();
    auto const slots = reader.next_arg(BufferRule::kSlotsOfRows);
    args.slots = data<int32_t>(slots);
    args.num_slots = static_cast<int64_t>(slots.element_count());
    reader.sizes().set(kNumBags, args.num_slots);
    auto const values = reader.next_ret(BufferRule::kRows);
    args.values = values.untyped_data();
    reader.expect(value_type_of(values) == args.table.value_type,
                  "rows must have the dtype of the table's");
    for (int s = 0; s < args.table.num_states; ++s) {
      auto const narrow = args.table.state_width[s] == 1;
      auto const rule = narrow ? BufferRule::kRowNumber : BufferRule::kRowState;
      args.states[s] = data<float>(reader.next_ret(rule));
    }
  }

  static constexpr auto& scratch_bytes = no_scratch;
};

}  // namespace

Registration promote_registration() { return registration_of<Promote>(); }
Registration fetch_registration() { return registration_of<Fetch>(); }
Registration write_back_registration() { return registration_of<WriteBack>(); }
Registration swap_rows_registration() { return registration_of<SwapRows>(); }
Registration settle_registration() { return registration_of<Settle>(); }
Registration depart_registration() { return registration_of<Depart>(); }
Registration tier_rows_registration() { return registration_of<TierRows>(); }
Registration tier_gather_registration() { return registration_of<TierGather>(); }

}  // namespace dynemb
