// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/missing_test.cc: what becomes of the ids that a training lookup did not find, beside
// the lookup of a CPU, which decides id by id: full buckets that evict, that refuse, that have
// more new keys than places; bins with ids of several buckets and tables; rows that are held, and
// rows that depart.
#include "cuda/lookup/missing.cu"

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "core/lineage.h"
#include "cpu/table_ops.h"
#include "tests/cuda/scratch_memory.h"
#include "tests/cuda/table_content.h"

namespace {

using namespace dynemb;
using namespace dynemb::cuda;
using dynemb::testing::check_same_content;
using dynemb::testing::check_same_slots;
using dynemb::testing::random_at;
using dynemb::testing::ScratchMemory;
using dynemb::testing::test_hash;
using dynemb::testing::TestTable;
using dynemb::testing::ThreadsPool;

constexpr int32_t kDim = 8;

struct Spec {
  int64_t buckets;
  ScorePolicy policy;
  bool evicts;
};

constexpr uint32_t kRingSize = 4096;  // more keys than leave in a test

// A ring of departed rows, and the states of a table that has one.
struct Ring {
  std::vector<Departure> notes;  // behind the header
  std::vector<uint32_t> location, held;

  Ring(int64_t room, TableRef& table)
      : notes(size_t(room + 1)),
        location(size_t(table.local_buckets * kBucketCapacity)),
        held(location.size()) {
    table.num_states = 2;
    table.state_width[kLocationState] = table.state_width[kHeldState] = 1;
    table.state_initial[kLocationState] = 1.0f;
    table.states[kLocationState] = reinterpret_cast<float*>(location.data());
    table.states[kHeldState] = reinterpret_cast<float*>(held.data());
  }

  uint32_t* words() { return reinterpret_cast<uint32_t*>(notes.data()); }

  // The location of a row says which row it was. Some rows are held, for a lookup or two.
  void mark(TableRef const& table) {
    for (size_t slot = 0; slot < location.size(); ++slot) {
      auto const key = *key_at(table, static_cast<int32_t>(slot));
      auto const until = static_cast<uint32_t>(table.counters[kLookups] + 1 + key % 2);
      location[slot] = static_cast<uint32_t>(key);
      held[slot] = key % 7 == 0 ? until : key % 7 == 1 ? until - 2 : 0;
    }
  }

  // Departures may be noted in any order, hence a set.
  std::set<std::pair<Key, uint64_t>> departed() {
    std::set<std::pair<Key, uint64_t>> rows;
    auto const count = words()[kRingCount];
    CHECK(count < notes.size());
    for (uint32_t i = 0; i < count; ++i) {
      auto const& row = *departure_at(words(), i);
      CHECK(row.location == static_cast<uint32_t>(row.key) && size_t(row.slot) < location.size());
      CHECK(rows.emplace(row.key, row.score).second);
    }
    return rows;
  }
};

struct Tables {
  std::vector<std::unique_ptr<TestTable>> owned;
  std::vector<std::vector<uint64_t>> logs;  // of removed keys, if they are noted
  std::vector<Ring> rings;                  // if there is room in them

  explicit Tables(std::vector<Spec> const& specs, bool notes = false, int64_t room = 0) {
    for (auto const& spec : specs) {
      owned.push_back(std::make_unique<TestTable>(spec.buckets, kDim, spec.policy, spec.evicts));
      if (notes) logs.emplace_back(kRingSize + 1);
      if (room > 0) rings.emplace_back(room, owned.back()->ref);
    }
  }

  void mark_rows() {
    for (size_t t = 0; t < rings.size(); ++t) rings[t].mark(owned[t]->ref);
  }

  // The removed keys, in any order.
  std::vector<uint64_t> removed(size_t t) const {
    auto const& ring = logs[t];
    CHECK(ring[0] <= kRingSize);
    std::vector<uint64_t> keys(ring.begin() + 1, ring.begin() + 1 + int64_t(ring[0]));
    std::sort(keys.begin(), keys.end());
    return keys;
  }
};

struct Batch {
  std::vector<std::vector<Key>> ids;  // of each table
  std::vector<std::vector<int32_t>> slots;
  std::vector<std::vector<float>> rows;
  std::vector<uint64_t> given;

  explicit Batch(std::vector<std::vector<Key>> given) : ids(std::move(given)) {
    for (auto const& own : ids) {
      slots.emplace_back(own.size(), kMissingSlot);
      rows.emplace_back(own.size() * kDim);
    }
  }

  std::unique_ptr<LookupArgs> args(Tables& tables) {
    given.clear();
    given.reserve(ids.size());
    auto result = std::make_unique<LookupArgs>();
    result->num_tables = result->num_features = static_cast<int32_t>(ids.size());
    result->given = given.data();
    for (size_t t = 0; t < ids.size(); ++t) {
      result->tables[t] = tables.owned[t]->ref;
      // Some lookups give their rows a score.
      auto const number = random_at(ids[t].empty() ? 0 : ids[t][0]) % 4;
      auto const gives = result->tables[t].policy == ScorePolicy::kCustomized && number > 0;
      given.push_back(gives ? kCustomScoreBit | number : 0);
      FeatureRef f{};
      f.ids = ids[t].data();
      f.table = static_cast<int32_t>(t);
      f.num_ids = f.num_bags = static_cast<int64_t>(ids[t].size());
      f.bag_size = 1;
      f.rows = rows[t].data();
      f.slots = slots[t].data();
      result->features[t] = f;
      if (!tables.logs.empty()) result->removals[t] = {tables.logs[t].data(), 1, kRingSize};
      if (!tables.rings.empty()) {
        auto& ring = tables.rings[t];
        result->departures[t] = {ring.words(), static_cast<uint32_t>(ring.notes.size() - 1)};
      }
    }
    return result;
  }
};

// What cuda/lookup/lookup.cu does before, without rows: one lane after the other.
void probe(LookupArgs const& args, Touch const* uses, MissingList const& list) {
  for (int32_t f = 0; f < args.num_features; ++f) {
    auto const& feature = args.features[f];
    auto const& table = args.tables[feature.table];
    auto const& use = uses[feature.table];
    table.counters[kHits] += static_cast<uint64_t>(feature.num_ids);
    for (int64_t i = 0; i < feature.num_ids; ++i) {
      auto const key = static_cast<Key const*>(feature.ids)[i];
      auto const slot = find(table, key);
      feature.slots[i] = slot;
      if (slot >= 0 && table.policy == ScorePolicy::kCustomized) {
        touch_custom_score(table, slot, use, false);
      } else if (slot >= 0) {
        touch(score_at(table, slot), score_rule(table), use);
      }
      if (slot != kMissingSlot) continue;
      auto const claimed = claim_empty_slot(table, key, use.clock);
      feature.slots[i] = claimed.slot;
      auto const full = claimed.slot == kMissingSlot;
      auto const missing = Missing{key, static_cast<uint32_t>(i), static_cast<uint16_t>(f),
                                   full ? kUndecided : claimed.won, false};
      if (full) {
        *(list.last - list.counts->full++) = missing;
      } else {
        list.ids[list.counts->ids++] = missing;
      }
    }
  }
}

void lookup_by_kernels(Tables& tables, Batch& batch) {
  auto const args = batch.args(tables);
  auto const take = [&](Scratch& scratch, CallView* view) {
    *view = take_view(*args, scratch);
    return take_missing(total_ids(*args), scratch);
  };
  Scratch sizes(nullptr);
  CallView view;
  take(sizes, &view);
  ScratchMemory const memory(sizes.used());
  Scratch scratch(memory.first());
  auto list = take(scratch, &view);
  list.counts = missing_counts(args->tables[0]);
  begin_missing(list, {0, 1});
  std::vector<Touch> uses;
  std::vector<CounterRows> counted;
  int64_t first_slot = 0;
  for (int32_t t = 0; t < args->num_tables; ++t) {
    auto const& table = args->tables[t];
    auto const clock = next_clock(table.counters[kClock], 0);
    begin_moment(table, static_cast<uint64_t>(t));  // as the kernel that probes does
    uses.push_back(touch_of(score_rule(table), clock, args->given[t]));
    counted.push_back({{2, {kClock, kLookups}, {clock, table.counters[kLookups] + 1}},
                       table.counters,
                       table.counter_rows});
    view.tables[t] = table;
    view.features[t] = args->features[t];
    view.first_slot[t] = first_slot;
    first_slot += table.local_buckets * kBucketCapacity;
  }
  probe(*args, uses.data(), list);
  auto const call = MissingCall{view, uses.data(), counted.data(), list};
  auto const ids = total_ids(*args);
  auto const selects = has_policy(*args, ScorePolicy::kCustomized);  // cuda/lookup/lookup.cu
  if (tables.logs.empty() && tables.rings.empty() && !selects) {
    CHECK(launch_missing<false>({call, {}, {}}, ids, nullptr) == cudaSuccess);
  } else {
    SelectingCall<true> const noting{call, selection_of<true>(*args), removals_of<true>(*args)};
    CHECK(launch_missing<true>(noting, ids, nullptr) == cudaSuccess);
  }
  CHECK(list.counts->ids == 0 && list.counts->full == 0);
}

void lookup_by_cpu(Tables& tables, Batch& batch) {
  ThreadsPool threads(1);
  cpu::lookup(*batch.args(tables), threads.pool);
}

void check_same(Tables& ours, Batch const& batch, Tables& truth, Batch const& wanted) {
  for (size_t t = 0; t < ours.owned.size(); ++t) {
    auto const& table = ours.owned[t]->ref;
    check_same_content(table, truth.owned[t]->ref);
    if (!ours.logs.empty()) {
      CHECK(ours.removed(t) == truth.removed(t));
      CHECK(table.counters[kEvictedYoung] == truth.owned[t]->ref.counters[kEvictedYoung]);
      CHECK(ours.logs[t][0] == table.counters[kEvicted]);
    }
    if (!ours.rings.empty()) {
      CHECK(ours.rings[t].departed() == truth.rings[t].departed());
      auto const* const words = ours.rings[t].words();
      CHECK(words[kRingCount] == table.counters[kEvicted] && words[kRingCopied] == 0);
      // Not always as many: of several equal ids one may claim before it loses its place.
      CHECK((words[kRingRefused] == 0) == (truth.rings[t].words()[kRingRefused] == 0));
    }
    check_same_slots(table, batch.ids[t].data(), batch.slots[t].data(), wanted.slots[t].data(),
                     batch.ids[t].size());
  }
}

// Draws some old ids and some new ones, some of them several times.
std::vector<Key> ids_of(uint64_t step, size_t count, uint64_t distinct) {
  std::vector<Key> ids;
  for (size_t i = 0; i < count; ++i)
    ids.push_back(random_at((step / 2) << 32 | random_at(step << 40 | i) % distinct));
  return ids;
}

// Runs a batch by the kernels and by a CPU.
void step(Tables& ours, Tables& truth, std::vector<std::vector<Key>> const& ids) {
  Batch batch(ids), wanted(ids);
  ours.mark_rows();
  truth.mark_rows();
  lookup_by_kernels(ours, batch);
  lookup_by_cpu(truth, wanted);
  check_same(ours, batch, truth, wanted);
}

void run(std::vector<Spec> const& specs, size_t count, uint64_t distinct, bool notes = false,
         int64_t room = 0) {
  Tables ours(specs, notes, room), truth(specs, notes, room);
  for (uint64_t i = 0; i < 6; ++i) {
    std::vector<std::vector<Key>> ids;
    for (size_t t = 0; t < specs.size(); ++t) {
      ids.push_back(ids_of(i * 64 + 2 * t, count, distinct));
    }
    step(ours, truth, ids);
  }
}

// The same ids in several tables, all of one bucket, which is in the same bin: a key that loses its
// place in one table keeps it in another with fewer of them.
void run_same_ids(ScorePolicy policy) {
  constexpr int64_t kBuckets = 64;
  std::vector<Spec> const specs(4, {kBuckets, policy, true});
  Tables ours(specs), truth(specs);
  for (uint64_t i = 0; i < 3; ++i) {
    std::vector<Key> keys;
    for (uint64_t n = 0; keys.size() < 300; ++n) {
      auto const key = random_at(i << 32 | n);
      if (bucket_of(hash_key(key, test_hash), kBuckets) == 0) keys.push_back(key);
    }
    std::vector<std::vector<Key>> ids(specs.size(), keys);
    for (size_t t : {0, 1}) ids[t].erase(ids[t].begin(), ids[t].begin() + 200);  // room for all
    for (size_t t : {2, 3}) std::reverse(ids[t].begin(), ids[t].end());
    step(ours, truth, ids);
  }
}

void check_all() {
  for (auto const policy : {ScorePolicy::kStep, ScorePolicy::kLfu, ScorePolicy::kCustomized,
                            ScorePolicy::kDecayingLfu}) {
    run({{4, policy, true}}, 300, 200);   // rows are evicted
    run({{2, policy, true}}, 1000, 900);  // more new keys than places, long bins
    run({{2, policy, false}}, 300, 300);  // full, and no row is evicted
    run({{1, policy, true}, {64, policy, true}, {3, policy, false}}, 500, 400);
    run({{512, policy, true}}, 30, 30);  // no key meets a full bucket
    run_same_ids(policy);
    run({{4, policy, true}, {2, policy, false}}, 300, 200, true);
    run({{2, policy, true}}, 1000, 900, true);
    run({{4, policy, true}, {2, policy, false}}, 300, 200, false, 5000);
    run({{2, policy, true}}, 1000, 900, true, 5000);
    // In one bucket it is known whose place in the ring was the last.
    for (int64_t const room : {1, 40, 200}) run({{1, policy, true}}, 200, 150, false, room);
  }
  run({{2, ScorePolicy::kStep, true}, {2, ScorePolicy::kLfu, true}}, 200, 100);
}

}  // namespace

int main() {
  dynemb::testing::with_each_hash(check_all);
  std::puts("missing: ok");
  return 0;
}
