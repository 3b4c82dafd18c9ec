// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/tiers.cc: operations on one tiered table; their buffers stand in
// docs/decisions/tiers.md.
#include <memory>

#include "core/tiers/record.h"
#include "core/tiers/tier_args.h"
#include "xla_ffi/features.h"
#include "xla_ffi/handlers/operation.h"
#include "xla_ffi/handlers/registrations.h"
#include "xla_ffi/limits.h"

namespace dynemb {
namespace {

// Reads the arrays of a tiered table in the order that all calls have.
class TierReader {
 public:
  TierReader(BufferReader& reader, TableAttrs const& attrs, TableRef& table, TierRef& tier)
      : reader_(reader), attrs_(attrs), fields_(attrs.tables.begin()), table_(table), tier_(tier) {
    describe_table(attrs, 0, table);
    table.num_buckets = static_cast<uint64_t>(fields_[kTableNumBuckets]);
    table.local_buckets = fields_[kTableLocalBuckets];
    reader.expect(table.num_buckets % static_cast<uint64_t>(table.local_buckets) == 0,
                  "a shard must hold an equal part of the table's buckets");
    reader.sizes().set(kBuckets, table.local_buckets);
    reader.sizes().set(kTierSlots, table.local_buckets * kBucketCapacity);
  }

  void index() { table_.index = data<uint8_t>(reader_.next_arg(BufferRule::kIndex)); }

  void counters() {
    auto const counters = reader_.next_arg(BufferRule::kCounters);
    table_.counters = data<uint64_t>(counters);
    table_.counter_rows = static_cast<int32_t>(dimension(counters, 0));
    reader_.expect(table_.counter_rows > 0, "a table must have rows of counters");
  }

  void places(bool changes) {
    tier_.place = data<uint32_t>(next(BufferRule::kPlace, changes));
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

  // After the rows. With `whole` the record must be that of the table's row and states.
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
  TableAttrs const& attrs_;
  int64_t const* fields_;
  TableRef& table_;
  TierRef& tier_;
  int64_t num_rows_ = 0;
};

bool is_tiered(BufferReader& reader, TableAttrs const& attrs) {
  return is_one_table(reader, attrs) &&
         reader.expect(attrs.tables[kTablePart] == kWholeTable, "the call is about a whole table");
}

// What promote and fetch take before anything of their own.
template <class Args>
void read_moved(BufferReader& reader, TableAttrs const& attrs, Args& args) {
  TierReader tier(reader, attrs, args.table, args.tier);
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

// Scratch of a call with so many slots; the number of ids stands in the shape.
template <class Args, size_t (*bytes_of)(Args const&)>
size_t scratch_of(CallShape const& shape, int64_t Args::* count) {
  Args args{};
  args.table.local_buckets = shape.buckets.empty() ? 0 : shape.buckets[0];
  args.table.dim = shape.dims.empty() ? 1 : shape.dims[0];
  args.*count = shape.ids.empty() ? 0 : shape.ids[0];
  args.tier.frames = shape.ids.size() > 1 ? static_cast<int32_t>(shape.ids[1]) : kMostFrames;
  args.tier.spill_rows = shape.ids.size() > 2 ? static_cast<int32_t>(shape.ids[2]) : 1;
  return bytes_of(args);
}

struct Promote {
  static constexpr auto kTarget = "dynemb_promote";
  static constexpr auto kRun = &backend::promote;
  static auto bind() { return bind_table().Attr<int64_t>("purpose"); }

  PromoteArgs args{};

  void read(BufferReader& reader, TableAttrs const& attrs, int64_t purpose) {
    if (!is_tiered(reader, attrs)) return;
    args.purpose = purpose == 0 ? Promotion::kLookup : Promotion::kPrefetch;
    read_moved(reader, attrs, args);
    args.spilled = data<int32_t>(reader.next_ret(BufferRule::kSpilled));
    args.arriving = data<int32_t>(reader.next_ret(BufferRule::kSlotsOfRows));
    args.into = data<int32_t>(reader.next_ret(BufferRule::kRowNumbers));
  }

  static size_t scratch_bytes(CallShape const& shape) {
    return scratch_of<PromoteArgs, backend::promote_scratch_bytes>(shape, &PromoteArgs::num_ids);
  }
};

struct Fetch {
  static constexpr auto kTarget = "dynemb_fetch";
  static constexpr auto kRun = &backend::fetch;
  static auto bind() { return bind_table().Attr<int64_t>("has_keys"); }

  FetchArgs args{};

  void read(BufferReader& reader, TableAttrs const& attrs, int64_t has_keys) {
    if (!is_tiered(reader, attrs)) return;
    read_moved(reader, attrs, args);
    if (has_keys != 0) args.keys = data<Key>(reader.next_arg(BufferRule::kKeysOfSlots));
    args.round = data<int32_t>(reader.next_arg(BufferRule::kRound));
    args.places = data<int32_t>(reader.next_ret(BufferRule::kSlotsOfRows));
    args.spilled = data<int32_t>(reader.next_ret(BufferRule::kSpilled));
    args.count = data<int32_t>(reader.next_ret(BufferRule::kCount));
  }

  static size_t scratch_bytes(CallShape const& shape) {
    return scratch_of<FetchArgs, backend::fetch_scratch_bytes>(shape, &FetchArgs::num_ids);
  }
};

// A list of slots and one of rows, side by side. Returns how many there are.
int64_t read_list(BufferReader& reader, int32_t const*& slots, int32_t const*& rows) {
  reader.sizes().forget(kNumSlots);
  auto const first = reader.next_arg(BufferRule::kSlotsOfRows);
  slots = data<int32_t>(first);
  rows = data<int32_t>(reader.next_arg(BufferRule::kRowNumbers));
  return static_cast<int64_t>(first.element_count());
}

// What write_back and swap_rows take.
void read_write_back(BufferReader& reader, TableAttrs const& attrs, WriteBackArgs& args) {
  if (!is_tiered(reader, attrs)) return;
  TierRef tier{};
  TierReader arrays(reader, attrs, args.table, tier);
  auto const homes = reader.next_aliased(BufferRule::kHomes);
  args.homes = data<uint8_t>(homes);
  args.num_slots = dimension(homes, 0);
  args.record_bytes = 4 * dimension(homes, 1);
  arrays.rows(false);
  args.num_rows = arrays.num_rows();
  reader.expect(args.record_bytes == record_bytes_of(args.table),
                "a home record must hold a row and its states");
  args.count = read_list(reader, args.slots, args.rows);
}

struct WriteBack {
  static constexpr auto kTarget = "dynemb_write_back";
  static constexpr auto kRun = &backend::write_back;
  static constexpr bool kOnHost = true;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_table(); }

  WriteBackArgs args{};

  void read(BufferReader& reader, TableAttrs const& attrs) { read_write_back(reader, attrs, args); }
};

struct SwapRows {
  static constexpr auto kTarget = "dynemb_swap_rows";
  static constexpr auto kRun = &backend::swap_rows;
  static constexpr bool kOnHost = true;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_table(); }

  WriteBackArgs args{};

  void read(BufferReader& reader, TableAttrs const& attrs) {
    read_write_back(reader, attrs, args);
    if (!reader.failed()) args.num_arriving = read_list(reader, args.arriving, args.into);
  }
};

struct Settle {
  static constexpr auto kTarget = "dynemb_settle";
  static constexpr auto kRun = &backend::settle;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_table(); }

  SettleArgs args{};

  void read(BufferReader& reader, TableAttrs const& attrs) {
    if (!is_tiered(reader, attrs)) return;
    TierReader arrays(reader, attrs, args.table, args.tier);
    arrays.rows(true);
    arrays.homes();
    args.num_rows = arrays.num_rows();
    args.num_arriving = read_list(reader, args.arriving, args.into);
  }
};

struct Depart {
  static constexpr auto kTarget = "dynemb_depart";
  static constexpr auto kRun = &backend::depart;
  static constexpr auto& scratch_bytes = no_scratch;
  static auto bind() { return bind_table(); }

  DepartArgs args{};

  void read(BufferReader& reader, TableAttrs const& attrs) {
    if (!is_tiered(reader, attrs)) return;
    TierReader tier(reader, attrs, args.table, args.tier);
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
    if (!is_tiered(reader, attrs) || !reader.records(RecordRule::kFeatures, features)) return;
    args.table = {};
    args.tier = {};
    args.num_features = count_rows(features, kNumFeatureFields);
    if (!reader.expect(args.num_features <= kMaxFeatures, "too many features in one call")) return;
    TierReader tier(reader, attrs, args.table, args.tier);
    tier.counters();
    tier.places(false);
    tier.rows(false, false);
    tier.homes(false);
    args.serves = serves != 0 ? 1 : 0;
    args.missing = serves != 0 ? args.table.eval_initializer : args.table.initializer;
    read_tier_rows(reader, {features, args.features, args.num_features, &args.table, 1});
    args.done = data<uint32_t>(reader.next_ret(BufferRule::kDone));
  }

  static size_t scratch_bytes(CallShape const& shape) {
    if (shape.ids.size() > kMaxFeatures) return 0;
    auto const args = std::make_unique<TierRowsArgs>();
    args->table.local_buckets = shape.buckets.empty() ? 0 : shape.buckets[0];
    args->table.dim = shape.dims.empty() ? 1 : shape.dims[0];
    args->num_features = static_cast<int32_t>(shape.ids.size());
    for (size_t f = 0; f < shape.ids.size(); ++f) args->features[f].num_ids = shape.ids[f];
    return backend::tier_rows_scratch_bytes(*args);
  }
};

struct TierGather {
  static constexpr auto kTarget = "dynemb_tier_gather";
  static constexpr auto kRun = &backend::tier_gather;
  static auto bind() { return bind_table(); }

  TierGatherArgs args{};

  void read(BufferReader& reader, TableAttrs const& attrs) {
    if (!is_tiered(reader, attrs)) return;
    TierReader tier(reader, attrs, args.table, args.tier);
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

  static size_t scratch_bytes(CallShape const& shape) {
    return scratch_of<TierGatherArgs, backend::tier_gather_scratch_bytes>(
        shape, &TierGatherArgs::num_slots);
  }
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
