// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// xla_ffi/handlers/sum_rows.cc: a reduction without a table.
#include "xla_ffi/handlers/exchange.h"
#include "xla_ffi/handlers/feature_operation.h"
#include "xla_ffi/handlers/registrations.h"

namespace dynemb {
namespace {

// Slots are the numbers of groups, and the sum of a group has a place of its own.
struct SumRows {
  static constexpr auto kTarget = "dynemb_sum_rows";
  static constexpr auto kRun = &backend::reduce;
  static auto bind() { return bind_features().Attr<IntAttr>("sums").Attr<int64_t>("ordered"); }

  ReduceArgs args;

  void read(BufferReader& reader, TableAttrs const& attrs, IntAttr features, IntAttr sums,
            int64_t ordered) {
    if (!set_counts(reader, args, attrs, features) || !reader.records(RecordRule::kSums, sums) ||
        !reader.expect(count_rows(sums, kNumSumsFields) == args.num_tables,
                       "attribute 'sums' must have a record for each table")) {
      return;
    }
    args.counts_step = 0;
    args.joins_lookups = 0;
    args.stamps = nullptr;
    RowArrays arrays(reader);
    for (int32_t t = 0; t < args.num_tables; ++t) {
      reader.at("table ", t);
      auto const buckets = attrs.tables[size_t(t * kNumTableFields + kTableLocalBuckets)];
      read_groups(reader, arrays, t, buckets, sums.begin() + t * kNumSumsFields);
    }
    read_gradients(reader, features_of(features, args), false);
    if (ordered != 0) read_order(reader);
  }

  void read_order(BufferReader& reader) {
    if (!reader.expect(args.num_features == 1, "an order is given of one feature only")) return;
    auto const ranks = reader.next_arg(BufferRule::kRanks);
    auto const positions = reader.next_arg(BufferRule::kPositions);
    args.order = {data<int32_t>(ranks), data<int32_t>(positions)};
  }

  void read_groups(BufferReader& reader, RowArrays& arrays, int32_t t, int64_t buckets,
                   int64_t const* fields) {
    auto const groups = fields[kSumsGroups];
    auto& table = args.tables[t] = TableRef{};
    table.dim = static_cast<int32_t>(fields[kSumsDim]);
    table.local_buckets = buckets;
    table.num_groups = static_cast<uint32_t>(groups);
    reader.expect(groups <= buckets * kBucketCapacity, "more groups than slots");
    reader.sizes().set(kNumBags, groups);
    reader.sizes().set(kDim, table.dim);
    auto const array = arrays.result(fields + kSumsRows);
    auto const rows = view_rows(reader, array, fields + kSumsRows, groups, table.dim);
    args.sums[t] = {nullptr, rows.data, rows.places, groups, rows.type};
  }

  static size_t scratch_bytes(CallShape const& shape) {
    return feature_scratch_bytes<ReduceArgs, backend::reduce_scratch_bytes>(shape);
  }
};

#ifdef DYNEMB_CUDA
// The groups of each shard go to that one.
struct PeerSums : SumRows {
  static constexpr auto kTarget = "dynemb_peer_sums";
  static auto bind() {
    return bind_features()
        .Attr<IntAttr>("sums")
        .Attr<IntAttr>("devices")
        .Attr<int64_t>("shards")
        .Attr<int64_t>("ordered");
  }

  void read(BufferReader& reader, TableAttrs const& attrs, IntAttr features, IntAttr sums,
            IntAttr devices, int64_t shards, int64_t ordered) {
    SumRows::read(reader, attrs, features, sums, 0);
    read_peers(reader, devices, shards);
    if (ordered == 0) return;
    int64_t items = 0;
    for (int32_t f = 0; f < args.num_features; ++f) items += args.features[f].num_ids;
    reader.sizes().set(kNumIds, items);
    args.order.positions = data<int32_t>(reader.next_arg(BufferRule::kPositions));
  }

  void read_peers(BufferReader& reader, IntAttr devices, int64_t shards) {
    auto const rank = reader.next_arg(BufferRule::kCount);
    reader.expect(are_groups(devices, shards), "devices must be groups of up to 8");
    for (int32_t t = 0; t < args.num_tables; ++t) {
      auto const& sums = args.sums[t];
      reader.expect(sums.capacity == shards * sums.places.group, "a peer has one group of rows");
    }
    args.peers = {devices.begin(), static_cast<int64_t>(devices.size()), shards,
                  data<int32_t>(rank)};
  }
};
#endif

}  // namespace

#ifdef DYNEMB_CUDA
Registration peer_sums_registration() { return registration_of<PeerSums>(); }
#endif
Registration sum_rows_registration() { return registration_of<SumRows>(); }

}  // namespace dynemb
