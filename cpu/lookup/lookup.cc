// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/lookup/lookup.cc: training lookup. The phases of core/lookup.h, each a loop over all ids;
// rows are written while probing, but for bags with an id that is not in the table yet.
#include "core/lookup.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <vector>

#include "core/exact_counter.h"
#include "core/group.h"
#include "core/lineage.h"
#include "core/row.h"
#include "core/vacate.h"
#include "cpu/lookup/probe_rows.h"
#include "cpu/loops/huge_pages.h"
#include "cpu/table_ops.h"

namespace dynemb::cpu {
namespace {

uint64_t nanoseconds_now() {
  auto const now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

// A number that no other lookup of this process gets, and hardly one of another process. A child
// that was forked counts on from the same number, so the time distinguishes it.
uint64_t draw_nonce() {
  static std::atomic<uint64_t> next{[] {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }()};
  auto const now = std::chrono::steady_clock::now().time_since_epoch().count();
  return next.fetch_add(0x9e3779b97f4a7c15ull, std::memory_order_relaxed) ^
         hash_number(static_cast<uint64_t>(now));
}

// touch() of a score that is a clock. Whether another id of the batch has touched the row is
// random, so it must not become a branch: what is there already is stored beside the table, because
// a store to a popular row would invalidate its line in the caches of all other cores.
inline void mark_used(uint64_t* score, uint64_t clock) {
  uint64_t unused;
  auto const seen = atomic_load(score);
  auto const wanted = clock | (seen & kPinBit);
  atomic_store(seen == wanted ? &unused : score, wanted);
}

// A chunk's positions with missing ids, what these have won, and the bags that wait for them.
struct Open {
  std::vector<int64_t> missing, bags;
  std::vector<Won> won;  // of each missing one
};

struct Lookup {
  LookupArgs const& args;
  ThreadPool const& pool;
  std::vector<FeatureChunk> chunks;
  std::vector<Open> open;  // of each chunk
  bool streams;            // rows past the caches
  Touch use[kMaxTables];
  std::mutex claims[64];  // of buckets of tables with a ring: bucket b has that of b modulo 64

  Lookup(LookupArgs const& a, ThreadPool const& p)
      : args(a),
        pool(p),
        chunks(cut_bags(a.features, a.num_features, kIdsPerChunk)),
        open(chunks.size()),
        streams(streams_rows(a)) {}

  FeatureRef const& feature_of(FeatureChunk const& chunk) const {
    return args.features[chunk.feature];
  }
  TableRef const& table_of(FeatureRef const& feature) const { return args.tables[feature.table]; }

  void begin() {
    auto const drawn = draw_nonce();
    for (int32_t i = 0; i < args.num_tables; ++i) {
      auto const& table = args.tables[i];
      prefer_huge_pages(table);
      auto const timed = table.policy == ScorePolicy::kTimestamp;
      auto const given = args.given == nullptr ? 0 : args.given[i];
      auto const now = timed && given == 0 ? nanoseconds_now() : given;
      auto const clock = next_clock(table.counters[kClock], timed ? now : 0);
      set_in_each_row(table, kClock, clock);
      set_in_each_row(table, kLookups, table.counters[kLookups] + 1);
      use[i] = touch_of(score_rule(table), clock, given);
      auto const moment = begin_moment(table, drawn);
      if (args.stamps != nullptr) args.stamps[i] = stamp_of(table, moment);
    }
  }

  RowTask task_of(FeatureChunk const& chunk, bool streams) const {
    auto const& feature = feature_of(chunk);
    auto const& table = table_of(feature);
    return {table, feature, table.initializer, streams};
  }

  void probe_chunk(int64_t index, FeatureChunk const& chunk) {
    auto const task = task_of(chunk, streams);
    auto const& table = task.table;
    auto const used = use[task.feature.table];
    auto const rule = score_rule(table);
    auto const* const uses = args.uses[chunk.feature];
    auto const num_ids = task.feature.num_ids;
    auto const touches = args.admissions[task.feature.table].keeps_scores == 0;
    auto const is_given = table.policy == ScorePolicy::kCustomized;
    auto const is_plain = touches && !is_given && uses == nullptr;
    auto const is_clock = is_plain && !is_packed(table.policy);
    Events events;
    probe_rows(task, chunk, &open[size_t(index)].bags,
               [&](int64_t position, int32_t slot, Entry* entry) {
                 if (__builtin_expect(slot < 0, 0))
                   return without_row(index, chunk, slot, position, &events);
                 if (__builtin_expect(is_clock, 1)) {
                   mark_used(&entry->score, used.clock);
                 } else if (is_plain) {
                   touch(&entry->score, rule, used);
                 } else if (touches) {
                   auto const own = touch_at(used, rule.policy, uses, num_ids, position);
                   if (is_given) {
                     touch_custom_score(table, slot, own, uses != nullptr);
                   } else {
                     touch(&entry->score, rule, own, uses[position]);
                   }
                 }
                 return slot;
               });
    events.hits += static_cast<uint64_t>(chunk.end - chunk.begin);
    if (args.uses[chunk.feature] != nullptr) events.hits += further_uses(chunk);
    events.add_to(table);
  }

  // A chunk adds up its own events, so that threads share no counter.
  struct Events {
    uint64_t hits = 0;  // may be below 0 for a while
    uint64_t misses = 0, refused = 0, not_admitted = 0;

    void add_to(TableRef const& table) const {
      if (hits != 0) fetch_add(table.counters + kHits, hits);
      if (misses > 0) fetch_add(table.counters + kMisses, misses);
      if (refused > 0) fetch_add(table.counters + kRefused, refused);
      if (not_admitted > 0) fetch_add(table.counters + kNotAdmitted, not_admitted);
    }
  };

  // Ids may stand for several uses; this counts those beyond the first.
  uint64_t further_uses(FeatureChunk const& chunk) const {
    auto const& feature = feature_of(chunk);
    uint64_t result = 0;
    auto const end = std::min(chunk.end, end_of_bags(feature));
    for (auto i = chunk.begin; i < end; ++i) {
      if (load_key(feature.ids, feature.id_type, i) >= kFirstReservedKey) continue;
      result += uint64_t{args.uses[chunk.feature][i]} - 1;
    }
    return result;
  }

  // Of an id that the probe has not found: its slot, kMissingSlot where it may get one. Apart:
  // rare, and long where it is inlined.
  __attribute__((noinline)) int32_t without_row(int64_t index, FeatureChunk const& chunk,
                                                int32_t slot, int64_t position, Events* events) {
    if (slot != kMissingSlot) {
      --events->hits;
      if (slot == kRefusedSlot) ++events->refused;
      return slot;
    }
    auto const& feature = feature_of(chunk);
    auto const uses = uses_at(args.uses[chunk.feature], position);
    events->misses += uses;
    events->hits -= uses;
    if (!may_enter(feature, position, uses)) {
      events->not_admitted += uses;
      return kNotAdmittedSlot;
    }
    open[size_t(index)].missing.push_back(position);
    return slot;
  }

  // False if the id is not admitted, whatever the others of the call are.
  bool may_enter(FeatureRef const& feature, int64_t position, uint32_t uses) const {
    auto const& table = table_of(feature);
    auto const& admission = args.admissions[feature.table];
    if (admission.rule == AdmissionRule::kAll) return true;
    if (admission.rule == AdmissionRule::kNone) return false;
    auto const key = load_key(feature.ids, feature.id_type, position);
    if (admission.rule == AdmissionRule::kProbability) {
      return wins_coin(admission, table.counters[kSeed], key, table.counters[kLookups]);
    }
    // Keys are counted by phases of their own.
    if (!counts_keys(admission.rule)) sketch_counters(table, admission, key).add(uses);
    return true;
  }

  KeyCounter counter_of(FeatureRef const& feature, int64_t position) const {
    auto const& table = table_of(feature);
    auto const key = load_key(feature.ids, feature.id_type, position);
    return {table, args.admissions[feature.table], table.counters[kLookups], key};
  }

  // A phase of core/exact_counter.h: function(counter, position, &claimed) for all missing ids of
  // a chunk whose table counts keys.
  template <class Function>
  void count(int64_t index, FeatureChunk const& chunk, Function const& function) {
    auto const& feature = feature_of(chunk);
    auto& [missing, bags, won] = open[size_t(index)];
    if (!counts_keys(args.admissions[feature.table].rule)) return;
    won.resize(missing.size());
    for (size_t i = 0; i < missing.size(); ++i) {
      auto& slot = feature.slots[missing[i]];
      Pending claimed{slot, won[i]};
      function(counter_of(feature, missing[i]), missing[i], &claimed);
      slot = claimed.slot, won[i] = claimed.won;
    }
  }

  void begin_counts(int64_t index, FeatureChunk const& chunk) {
    auto const* const uses = args.uses[chunk.feature];
    count(index, chunk, [&](KeyCounter const& counter, int64_t position, Pending* claimed) {
      *claimed = counter.begin(uses_at(uses, position));
    });
  }

  void claim_counts(int64_t index, FeatureChunk const& chunk) {
    count(index, chunk, [](KeyCounter const& counter, int64_t, Pending* claimed) {
      if (claimed->won == kUndecided) *claimed = counter.claim();
    });
  }

  void store_counts(int64_t index, FeatureChunk const& chunk) {
    count(index, chunk, [](KeyCounter const& counter, int64_t, Pending* claimed) {
      if (claimed->won == kFullBucket) counter.store(claimed->slot);
    });
  }

  void add_counts(int64_t index, FeatureChunk const& chunk) {
    auto const* const uses = args.uses[chunk.feature];
    count(index, chunk, [&](KeyCounter const& counter, int64_t position, Pending* claimed) {
      claimed->slot = counter.add(*claimed, uses_at(uses, position));
    });
  }

  bool is_admitted(FeatureRef const& feature, int64_t position) const {
    auto const& admission = args.admissions[feature.table];
    if (counts_keys(admission.rule)) {
      return counter_of(feature, position).decide(feature.slots[position]);
    }
    if (admission.rule != AdmissionRule::kFrequency) return true;
    auto const key = load_key(feature.ids, feature.id_type, position);
    return is_frequent(table_of(feature), admission, key);
  }

  // Without a ring claims need no lock. With one, a row must not take a place of the ring and then
  // stay.
  Pending claim_one(int32_t t, Key key, uint64_t* evicted) {
    auto const& table = args.tables[t];
    auto const& departures = args.departures[t];
    if (__builtin_expect(departures.ring == nullptr, 1)) {
      return claim_missing(table, key, use[t], evicted);
    }
    auto const bucket = local_bucket_of(table, hash_key(key, table.hash));
    std::lock_guard<std::mutex> const alone(claims[bucket % 64]);
    auto const leaving = RowsDepart(table, departures, bucket, table.counters[kLookups]);
    return claim_missing(table, key, use[t], evicted, leaving);
  }

  void claim_chunk(int64_t index, FeatureChunk const& chunk) {
    auto const& feature = feature_of(chunk);
    auto const& table = table_of(feature);
    auto& [missing, bags, won] = open[size_t(index)];
    auto const& removals = args.removals[feature.table];
    auto const notes = notes_removals(removals);
    auto const clock = use[feature.table].clock;
    uint64_t young = 0;
    won.resize(missing.size());
    for (size_t i = 0; i < missing.size(); ++i) {
      auto const key = load_key(feature.ids, feature.id_type, missing[i]);
      auto evicted = kEmptyScore;
      auto const claimed = is_admitted(feature, missing[i])
                               ? claim_one(feature.table, key, &evicted)
                               : Pending{kNotAdmittedSlot, kNotWon};
      if (notes && evicted != kEmptyScore) {
        auto const slot = pending(claimed.slot);
        auto const row = Entry{*key_at(table, slot), evicted};
        young += note_evicted(table, removals, slot, row, clock) ? 1 : 0;
      }
      feature.slots[missing[i]] = claimed.slot;
      won[i] = claimed.won;
    }
    if (young > 0) fetch_add(table.counters + kEvictedYoung, young);
  }

  void store_chunk(int64_t index, FeatureChunk const& chunk) {
    auto const& feature = feature_of(chunk);
    auto const& table = table_of(feature);
    auto const& [missing, bags, won] = open[size_t(index)];
    uint64_t evicted = 0;
    for (size_t i = 0; i < missing.size(); ++i) {
      if (won[i] != kFullBucket) continue;
      auto const key = load_key(feature.ids, feature.id_type, missing[i]);
      auto const slot = feature.slots[missing[i]];
      evicted += store_key(table, key, slot, use[feature.table].clock) ? 1 : 0;
    }
    if (evicted == 0) return;
    fetch_add(table.counters + kEvicted, evicted);
    fetch_add(table.counters + kRows, ~evicted + 1);
    note_left(table);
  }

  void resolve_chunk(int64_t index, FeatureChunk const& chunk) {
    auto const& feature = feature_of(chunk);
    auto const& table = table_of(feature);
    auto const& [missing, bags, won] = open[size_t(index)];
    uint64_t inserted = 0;
    Events events;
    for (size_t i = 0; i < missing.size(); ++i) {
      auto const key = load_key(feature.ids, feature.id_type, missing[i]);
      auto& slot = feature.slots[missing[i]];
      auto const* const uses = args.uses[chunk.feature];
      auto const own =
          touch_at(use[feature.table], table.policy, uses, feature.num_ids, missing[i]);
      auto const now = resolve(table, key, {slot, won[i]}, own, uses_at(uses, missing[i]));
      slot = now.slot;
      if (slot == kRefusedSlot) ++events.refused;
      if (slot == kNotAdmittedSlot)
        events.not_admitted += uses_at(args.uses[chunk.feature], missing[i]);
      if (!now.is_new) continue;
      initialize_slot(ScalarGroup{}, table, key, slot);
      ++inserted;
    }
    if (inserted > 0) {
      fetch_add(table.counters + kInserted, inserted);
      fetch_add(table.counters + kRows, inserted);
    }
    events.add_to(table);
  }

  void raise_chunk(int64_t /*index*/, FeatureChunk const& chunk) {
    if (!raises_custom_scores(args, chunk.feature)) return;
    auto const& feature = feature_of(chunk);
    for (auto i = chunk.begin; i < chunk.end; ++i) {
      raise_custom_score(table_of(feature), feature, args.uses[chunk.feature], i);
    }
  }

  using Phase = void (Lookup::*)(int64_t, FeatureChunk const&);

  void run(Phase phase) {
    for_each(pool, chunks,
             [&](int64_t index, FeatureChunk const& chunk) { (this->*phase)(index, chunk); });
  }

  void write_open_bags(int64_t index, FeatureChunk const& chunk) {
    auto const& bags = open[size_t(index)].bags;
    if (bags.empty()) return;
    with_writer(task_of(chunk, false), nullptr, [&](auto, auto& writer) {
      for (auto const bag : bags) writer.write_bag(bag, {chunk.begin, chunk.end});
    });
  }

  bool counts_any_keys() const {
    return std::any_of(args.admissions, args.admissions + args.num_tables,
                       [](Admission const& a) { return counts_keys(a.rule); });
  }

  bool raises_any() const {
    for (int32_t f = 0; f < args.num_features; ++f) {
      if (raises_custom_scores(args, f)) return true;
    }
    return false;
  }

  bool any_missing() const {
    return std::any_of(open.begin(), open.end(), [](Open const& o) { return !o.missing.empty(); });
  }
};

}  // namespace

void lookup(LookupArgs const& args, ThreadPool const& pool) {
  Lookup operation(args, threads_for(args.features, args.num_features, pool));
  operation.begin();
  operation.run(&Lookup::probe_chunk);
  if (operation.any_missing()) {
    if (operation.counts_any_keys()) {
      operation.run(&Lookup::begin_counts);
      operation.run(&Lookup::claim_counts);
      operation.run(&Lookup::store_counts);
      operation.run(&Lookup::add_counts);
    }
    operation.run(&Lookup::claim_chunk);
    operation.run(&Lookup::store_chunk);
    operation.run(&Lookup::resolve_chunk);
    operation.run(&Lookup::write_open_bags);
  }
  if (operation.raises_any()) operation.run(&Lookup::raise_chunk);
}

}  // namespace dynemb::cpu
