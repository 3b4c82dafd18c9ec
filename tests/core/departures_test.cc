// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/core/departures_test.cc: lookups by several threads above a store. What leaves a bucket is
// in the ring, once, as it was; rows that are held, and those without a place there, stay.
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "core/args.h"
#include "core/slot.h"
#include "cpu/table_ops.h"
#include "tests/core/test_table.h"

namespace {

using namespace dynemb;
using dynemb::testing::random_at;
using dynemb::testing::TestTable;
using dynemb::testing::ThreadsPool;

constexpr int32_t kDim = 4;
constexpr int64_t kBuckets = 1;  // so that threads meet
constexpr int64_t kSlots = kBuckets * kBucketCapacity;
constexpr uint64_t kKeys = 4000;

struct Row {
  uint64_t score;
  int32_t slot;
  uint32_t location;
  bool operator==(Row const&) const = default;
};
using Rows = std::map<Key, Row>;

// The index part of a tiered table: its states are places and holds.
class TableAboveStore {
 public:
  explicit TableAboveStore(uint32_t room)
      : table_(kBuckets, kDim, ScorePolicy::kStep, true),
        location_(kSlots),
        held_(kSlots),
        ring_(size_t(1 + room) * kDepartureWords),
        room_(room) {
    auto& ref = table_.ref;
    ref.num_states = 2;
    ref.states[kLocationState] = location_.data();
    ref.states[kHeldState] = held_.data();
    ref.state_width[0] = ref.state_width[1] = 1;
    ref.state_initial[kLocationState] = 1.0f;
  }

  void lookup(std::vector<Key> ids, int threads) {
    auto args = std::make_unique<LookupArgs>();
    std::vector<int32_t> slots(ids.size());
    std::vector<float> rows(ids.size() * kDim);
    uint64_t const no_score = 0;
    args->num_tables = args->num_features = 1;
    args->given = &no_score;
    args->tables[0] = table_.ref;
    args->departures[0] = {ring_.data(), room_};
    auto& feature = args->features[0];
    feature.ids = ids.data();
    feature.num_ids = feature.num_bags = static_cast<int64_t>(ids.size());
    feature.bag_size = 1;
    feature.rows = rows.data();
    feature.slots = slots.data();
    ThreadsPool threads_pool(threads);
    cpu::lookup(*args, threads_pool.pool);
  }

  // Returns the rows of the table. Each gets a place of its own, which a departure must note.
  Rows rows() {
    Rows result;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      auto const key = *key_at(table_.ref, slot);
      if (key == kEmptyKey) continue;
      auto* const place = reinterpret_cast<uint32_t*>(location_.data()) + slot;
      *place = static_cast<uint32_t>(slot % 5);
      CHECK(result.emplace(key, Row{*score_at(table_.ref, slot), slot, *place}).second);
    }
    return result;
  }

  // What has departed since the last call; the ring is empty then.
  Rows take() {
    Rows result;
    CHECK(ring_[kRingCount] <= room_);
    for (uint32_t i = 0; i < ring_[kRingCount]; ++i) {
      auto const& note = *departure_at(ring_.data(), i);
      CHECK(result.emplace(note.key, Row{note.score, note.slot, note.location}).second);
    }
    refused_ += ring_[kRingRefused];
    std::fill(ring_.begin(), ring_.end(), 0u);
    return result;
  }

  void hold(int32_t slot, uint32_t lookups) {
    auto const until = static_cast<uint32_t>(table_.ref.counters[kLookups]) + lookups;
    reinterpret_cast<uint32_t*>(held_.data())[slot] = until;
  }

  uint64_t refused() const { return refused_; }
  uint64_t count(Counter counter) const { return table_.ref.counters[counter]; }

 private:
  TestTable table_;
  std::vector<float> location_, held_;
  std::vector<uint32_t> ring_;
  uint32_t room_;
  uint64_t refused_ = 0;
};

std::vector<Key> some_keys(uint64_t round) {
  std::vector<Key> ids(2048);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<Key>(random_at(round * 1'000'003 + i) % kKeys);
    if (i % 4 == 0) ids[i] = static_cast<Key>(random_at(i) % 64);  // many times
  }
  return ids;
}

// Returns how many rows departed.
uint64_t rows_leave_once(uint32_t room, int rounds) {
  TableAboveStore table(room);
  uint64_t departed = 0, inserted = 0;
  for (int round = 0; round < rounds; ++round) {
    auto const before = table.rows();
    std::set<Key> held;
    for (auto const& [key, row] : before) {
      if (random_at(static_cast<uint64_t>(key) + uint64_t(round)) % 8 != 0) continue;
      table.hold(row.slot, 1);
      held.insert(key);
    }
    table.lookup(some_keys(uint64_t(round)), 8);
    auto const gone = table.take();
    auto const after = table.rows();
    for (auto const& [key, row] : gone) {
      CHECK(before.contains(key) && before.at(key) == row);
      CHECK(!after.contains(key) && !held.contains(key));
    }
    for (auto const& [key, row] : before) {
      CHECK(gone.contains(key) || after.at(key).slot == row.slot);
    }
    departed += gone.size();
    inserted += after.size() + gone.size() - before.size();
  }
  CHECK(departed == table.count(kEvicted) && inserted == table.count(kInserted));
  CHECK((table.refused() > 0) == (room < 100));
  return departed;
}

}  // namespace

int main() {
  dynemb::testing::with_each_hash([] {
    CHECK(rows_leave_once(4096, 20) > 1000);
    auto const few = rows_leave_once(20, 20);
    CHECK(few > 200 && few <= 20 * 20);
  });
}
