// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/fuzz/departures.cc: random lookups in a table whose evicted rows go to a ring. Its header,
// places and holds may be anything.
#include "core/departures.h"

#include <algorithm>
#include <memory>

#include "tests/fuzz/data.h"

namespace dynemb::fuzz {
namespace {

// What a table has beside its index, and how it was before the call.
struct Ring {
  int64_t room;
  Array location, held, notes;
  uint32_t count;  // as the header says
  uint64_t evicted, lookup;
  std::vector<Key> keys;  // of the rows that are held, by slot; else kEmptyKey

  Ring(Table const& table, Random& random)
      : room(random.of<int64_t>({1, 3, 40, 300})),
        location(kS32, {table.slots()}),
        held(kS32, {table.slots()}),
        notes(kU32, {1 + room, kDepartureWords}),
        evicted(table.counter(kEvicted)),
        lookup(table.counter(kLookups) + 1),
        keys(static_cast<size_t>(table.slots()), kEmptyKey) {
    for (int64_t i = 0; i < notes.count(); ++i) notes.data<uint32_t>()[i] = any(random);
    if (random.one_in(2)) {
      for (int word = 0; word < 2; ++word) {
        notes.data<uint32_t>()[word] = static_cast<uint32_t>(random.below(room + 1));
      }
    }
    count = notes.data<uint32_t>()[kRingCount];
    auto const all_held = random.one_in(4);
    for (int64_t slot = 0; slot < table.slots(); ++slot) {
      location.data<uint32_t>()[slot] = any(random);
      auto const soon = static_cast<uint32_t>(lookup) + static_cast<uint32_t>(random.below(4));
      auto& until = held.data<uint32_t>()[slot];
      until = all_held || random.one_in(4) ? soon : random.one_in(2) ? 0 : any(random);
      auto const stays = until != 0 && until - static_cast<uint32_t>(lookup) < kMostHeld;
      if (stays && table.entry(slot).score != kEmptyScore) {
        keys[static_cast<size_t>(slot)] = table.entry(slot).key;
      }
    }
  }

  static uint32_t any(Random& random) { return static_cast<uint32_t>(random.hostile()); }

  Departure const& departure(uint32_t number) const {
    return *departure_at(notes.data<uint32_t>(), number);
  }

  void check(Table const& table) const {
    auto const now = notes.data<uint32_t>()[kRingCount];
    auto const left = table.counter(kEvicted) - evicted;
    expect(uint64_t{now} - count == left, "each evicted row is a departure");
    expect(left == 0 || now <= room, "departures have room");
    for (auto i = count; i != now; ++i) {
      auto const& row = departure(i);
      expect(row.slot >= 0 && row.slot < table.slots(), "a departure has a slot");
      expect(table.slot_of(row.key) < 0, "a departed key is not in the table");
      expect(table.entry(row.slot).key != row.key, "another key has its slot");
    }
    for (size_t slot = 0; slot < keys.size(); ++slot) {
      auto const& entry = table.entry(static_cast<int64_t>(slot));
      expect(keys[slot] == kEmptyKey || entry.key == keys[slot], "a held row stays");
    }
  }
};

// Gives an empty table of an eviction policy rows in nearly all of its slots.
void fill(Table& table, Random& random) {
  table.evicts = random.between(kEvicts, kCompetes);
  table.keeps_scores = 0;
  auto const factors = factors_of_seed(static_cast<uint64_t>(table.hash_seed));
  auto* const counters = table.counters.data<uint64_t>();
  for (int64_t row = 0; row < table.counter_rows; ++row) {
    counters[row * kNumCounters + kClock] = 100;
  }
  for (int64_t i = 0; i < 20 * table.slots(); ++i) {
    auto const key = random.bits() % 1000000 + 5000;  // beside most ids of a batch
    auto const hash = hash_key(key, factors);
    auto const buckets = static_cast<uint64_t>(table.buckets * table.parts);
    auto const bucket = static_cast<int64_t>(bucket_of(hash, buckets)) % table.buckets;
    auto const slot = bucket * kBucketCapacity + random.below(kBucketCapacity);
    auto& entry = const_cast<Entry&>(table.entry(slot));
    if (entry.score != kEmptyScore || table.slot_of(key) >= 0) continue;
    auto const clock = static_cast<uint64_t>(random.between(1, 100));
    auto const packed = is_packed(static_cast<ScorePolicy>(table.policy));
    entry = {key, packed ? pack_score(static_cast<uint64_t>(random.below(3)), clock) : clock};
    auto* const digests = const_cast<uint8_t*>(table.bucket_of(slot));
    digests[slot % kBucketCapacity] = digest_of(hash);
    counters[kRows] += 1;
  }
}

}  // namespace

Call make_departing_lookup(World& world, Random& random) {
  auto& of_world = world[static_cast<size_t>(random.below(static_cast<int64_t>(world.size())))];
  auto const own = std::make_shared<Table>(random);
  auto const fills = random.one_in(2);
  if (fills) fill(*own, random);
  auto& table = fills ? *own : of_world;
  Ring const ring(table, random);
  Call call;
  table_attributes(call, {&table});
  for (auto& attribute : call.attributes) {
    if (attribute.name != "tables") continue;
    attribute.integers[kTableNumStates] = 2;
    attribute.integers[kTablePart] = kIndexPart;
    attribute.integers[kTableInitializer] = static_cast<int64_t>(InitializerKind::kGiven);
    attribute.integers[kTableDepartedRows] = ring.room;
  }
  if (table.takes_given()) {
    auto const given = call.operand(kU32, {1, 2});
    given.data<uint64_t>()[0] = random.bits() >> random.between(0, 63);
  }
  call.result(kU32, {1, sizeof(Stamp) / 4});
  for (auto const& array : {table.index, ring.location, ring.held, table.counters}) {
    call.aliased(array);
  }
  if (table.sketch_words > 0) call.aliased(table.sketch);
  if (table.ring_size > 0) call.aliased(table.rings);
  call.aliased(ring.notes);
  Attribute features{"features", true, {}, {}, false};
  for (auto count = random.between(1, 2); count > 0; --count) {
    std::vector<int64_t> fields(kNumFeatureFields, 0);
    fields[kFeaturePooling] = static_cast<int64_t>(Pooling::kNoRows);
    fields[kFeatureBagSize] = 1;
    fields[kFeatureRows + kRowsArray] = -1;
    features.integers.insert(features.integers.end(), fields.begin(), fields.end());
    auto const n = batch_size(random);
    call.operands.push_back(ids_of(random, n));
    call.result(kS32, {n});
  }
  call.attributes.push_back(features);
  finish(call);
  if (table.is_sound) {
    call.check = [ring, own, &table] {
      ring.check(table);
      table.check_log();
    };
  }
  return call;
}

}  // namespace dynemb::fuzz
