// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tiers/rows.cc: rows of a lookup, from frames and from homes (core/tiers/tier_args.h).
#include <algorithm>
#include <vector>

#include "core/tiers/tier_args.h"
#include "cpu/lookup/probe_rows.h"
#include "cpu/table_ops.h"
#include "cpu/tiers/pages.h"
#include "cpu/tiers/slots.h"

namespace dynemb::cpu {
namespace {

// This replaces the slot of a fresh row, which reads as an id without one, but for its initializer.
constexpr int32_t kFreshSlot = -5;

// Numbers below `num_rows` are rows of the arrays, the others slots of home records.
template <class V>
struct TierRowSource {
  TierRowsTable const& args;
  int64_t num_rows;

  V const* at(int64_t number) const {
    if (number < num_rows) return row_at<V>(args.table, number);
    auto const* const record = args.tier.homes + (number - num_rows) * args.tier.record_bytes;
    return reinterpret_cast<V const*>(record);
  }
  Initializer const& initial(int32_t number) const {
    return number == kFreshSlot ? args.table.initializer : args.missing;
  }
};

int32_t number_of(TierRowsTable const& args, int64_t num_rows, int32_t slot) {
  if (slot < 0) return std::max(slot, kNotAdmittedSlot);
  auto const limit = args.table.local_buckets * kBucketCapacity;  // there is no index
  if (!is_live(slot, static_cast<uint32_t>(limit))) return kPaddingSlot;
  auto const row = located_row(args.tier, slot);
  if (row >= 0) return static_cast<int32_t>(row);
  return is_fresh(args.tier, slot) ? kFreshSlot : static_cast<int32_t>(num_rows + slot);
}

void write_rows(TierRowsArgs const& call, FeatureChunk const& chunk, bool streams) {
  auto feature = call.features[chunk.feature];
  auto const& args = call.tables[feature.table];
  auto const num_rows = first_spill_row(args.tier, args.table) + args.tier.spill_rows;
  std::vector<int32_t> numbers(size_t(chunk.end - chunk.begin));
  auto const limit = static_cast<uint32_t>(args.table.local_buckets * kBucketCapacity);
  for (auto i = chunk.begin; i < chunk.end; ++i) {
    if (auto const ahead = i + kLocationsAhead; ahead < chunk.end) {
      prefetch_location(args.tier, feature.slots[ahead], limit);
    }
    numbers[size_t(i - chunk.begin)] = number_of(args, num_rows, feature.slots[i]);
  }
  feature.slots = numbers.data() - chunk.begin;
  with_value_type(args.table.value_type, [&](auto stored) {
    with_isa([&](auto isa) {
      using Source = TierRowSource<decltype(stored)>;
      RowWriter<decltype(isa)::value, decltype(stored), Source> writer(
          args.table, feature, {args, num_rows}, streams, nullptr);
      writer.start(chunk.first_bag, chunk.end_bag, {chunk.begin, chunk.end});
      if (!writer.has_rows()) return;
      auto const part = ids_at_once(args.table);
      auto begin = chunk.begin;
      do {
        auto const end = std::min(chunk.end, begin + part);
        writer.template prefetch<Cache::kSecond>(begin, end);
        writer.write(begin, end);
        begin = end;
      } while (begin < chunk.end);
    });
  });
  if (streams) end_streams();
}

bool streams(TierRowsArgs const& args) {
  int64_t bytes = 0;
  for (int32_t f = 0; f < args.num_features; ++f) {
    auto const& feature = args.features[f];
    auto const dim = args.tables[feature.table].table.dim;
    bytes += feature.num_bags * dim * bytes_of(feature.row_type);
  }
  return bytes > kStreamBytes;
}

}  // namespace

void tier_rows(TierRowsArgs const& args, ThreadPool const& all) {
  auto const& pool = threads_for(args.features, args.num_features, all);
  if (args.serves != 0) prefer_pages(args);  // a lookup has promoted rows before
  auto const past_caches = streams(args);
  for_each(pool, cut_bags(args.features, args.num_features, kIdsPerChunk),
           [&](int64_t, FeatureChunk const& chunk) { write_rows(args, chunk, past_caches); });
  if (args.done != nullptr) *args.done = 0;
}

}  // namespace dynemb::cpu
