// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/lookup.cc: training lookup. The phases of core/lookup.h, each a loop over all ids.
#include "core/lookup.h"

#include <chrono>
#include <vector>

#include "core/group.h"
#include "core/row.h"
#include "cpu/group_probe.h"
#include "cpu/output_rows.h"
#include "cpu/table_ops.h"

namespace dynemb::cpu {
namespace {

constexpr int64_t kIdsPerChunk = 1024;

uint64_t nanoseconds_now() {
  auto const now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

struct Lookup {
  LookupArgs const& args;
  ThreadPool const& pool;
  std::vector<FeatureChunk> chunks;
  std::vector<std::vector<int64_t>> missing;  // positions, a list for each chunk
  std::vector<std::vector<int64_t>> winners;  // positions whose claim won
  Touch use[kMaxTables];

  Lookup(LookupArgs const& a, ThreadPool const& p)
      : args(a),
        pool(p),
        chunks(cut_ids(a.features, a.num_features, kIdsPerChunk)),
        missing(chunks.size()),
        winners(chunks.size()) {}

  FeatureRef const& feature_of(FeatureChunk const& chunk) const {
    return args.features[chunk.feature];
  }
  TableRef const& table_of(FeatureRef const& feature) const { return args.tables[feature.table]; }

  void begin() {
    for (int32_t i = 0; i < args.num_tables; ++i) {
      auto const& table = args.tables[i];
      auto const timed = table.policy == ScorePolicy::kTimestamp;
      auto const clock = next_clock(table.counters[kClock], timed ? nanoseconds_now() : 0);
      set_in_each_row(table, kClock, clock);
      set_in_each_row(table, kLookups, table.counters[kLookups] + 1);
      use[i] = {clock, args.given_scores[i]};
    }
  }

  void probe_chunk(int64_t index, FeatureChunk const& chunk) {
    auto const& feature = feature_of(chunk);
    auto const& table = table_of(feature);
    uint64_t refused = 0;
    auto const& used = use[feature.table];
    for_each_probe(table, feature, chunk.begin, chunk.end, [&](int64_t position, int32_t slot) {
      feature.slots[position] = slot;
      if (slot >= 0) touch(score_at(table, slot), table.policy, used.clock, used.given);
      if (slot == kMissingSlot) missing[size_t(index)].push_back(position);
      if (slot == kRefusedSlot) ++refused;
    });
    if (refused > 0) fetch_add(table.counters + kRefused, refused);
  }

  void claim_chunk(int64_t index, FeatureChunk const& chunk) {
    auto const& feature = feature_of(chunk);
    auto const& table = table_of(feature);
    for (auto const position : missing[size_t(index)]) {
      auto const key = load_key(feature.ids, feature.id_type, position);
      auto const result = claim_missing(ScalarGroup{}, table, key, use[feature.table].clock);
      feature.slots[position] = result.slot;
      if (result.won) winners[size_t(index)].push_back(position);
    }
  }

  void store_chunk(int64_t index, FeatureChunk const& chunk) {
    auto const& feature = feature_of(chunk);
    auto const& table = table_of(feature);
    uint64_t inserted = 0, evicted = 0;
    for (auto const position : winners[size_t(index)]) {
      auto const key = load_key(feature.ids, feature.id_type, position);
      auto const stored = store_key(table, key, feature.slots[position], use[feature.table].clock);
      if (stored.slot < 0) continue;
      initialize_slot(ScalarGroup{}, table, key, stored.slot);
      ++inserted;
      evicted += stored.evicted ? 1 : 0;
    }
    if (inserted == 0) return;
    fetch_add(table.counters + kInserted, inserted);
    fetch_add(table.counters + kEvicted, evicted);
    fetch_add(table.counters + kRows, inserted - evicted);
  }

  void resolve_chunk(int64_t index, FeatureChunk const& chunk) {
    auto const& feature = feature_of(chunk);
    auto const& table = table_of(feature);
    uint64_t refused = 0;
    for (auto const position : missing[size_t(index)]) {
      auto const key = load_key(feature.ids, feature.id_type, position);
      auto& slot = feature.slots[position];
      slot = resolve(table, key, slot, use[feature.table]);
      if (slot == kRefusedSlot) ++refused;
    }
    if (refused > 0) fetch_add(table.counters + kRefused, refused);
  }

  using Phase = void (Lookup::*)(int64_t, FeatureChunk const&);

  void run(Phase phase) {
    for_each(pool, chunks,
             [&](int64_t index, FeatureChunk const& chunk) { (this->*phase)(index, chunk); });
  }

  bool any_missing() const {
    for (auto const& list : missing) {
      if (!list.empty()) return true;
    }
    return false;
  }

  void write_output() {
    for_each(pool, cut_bags(args.features, args.num_features, kIdsPerChunk),
             [&](int64_t, FeatureChunk const& chunk) {
               auto const& feature = feature_of(chunk);
               auto const& table = table_of(feature);
               write_rows(table, feature, table.initializer, chunk);
             });
  }
};

}  // namespace

void lookup(LookupArgs const& args, ThreadPool const& pool) {
  Lookup operation(args, pool);
  operation.begin();
  operation.run(&Lookup::probe_chunk);
  if (operation.any_missing()) {
    operation.run(&Lookup::claim_chunk);
    operation.run(&Lookup::store_chunk);
    operation.run(&Lookup::resolve_chunk);
  }
  operation.write_output();
}

}  // namespace dynemb::cpu
