// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/fuzz/tiers.cc: random calls about tiered tables; places and owners may be anything.
#include <algorithm>
#include <cstring>
#include <set>

#include "core/tiers/record.h"
#include "core/tiers/tier_args.h"
#include "tests/fuzz/data.h"

namespace dynemb::fuzz {
namespace {

// The arrays of a tier over the index of a table of the world. Where `sound`, places and owners
// agree; else they are any numbers.
struct Tier {
  Table* table;
  bool sound;
  int64_t frames, spill;
  Array place, owners, values, events, homes, counters;
  std::vector<Array> states;

  Tier(Table& of, Random& random)
      : table(&of),
        sound(random.one_in(2)),
        frames(random.between(1, kMostFrames)),
        spill(random.of<int64_t>({1, 7, 200})),
        place(kS32, {of.slots()}),
        owners(kU32, {of.buckets, frames}),
        values(of.dtype, {rows(), of.dim}),
        events(kU32, {of.counter_rows, kNumTierCounters, 2}),
        homes(kU32, {of.slots(), words()}),
        counters(of.counters.copy()) {
    for (auto const& state : of.states) {
      auto dims = state.dims;
      dims[0] = rows();
      states.emplace_back(state.dtype, dims);
      memset(states.back().memory.get(), 0, states.back().bytes());
    }
    fill_floats(random, values);
    memset(events.memory.get(), 0, events.bytes());
    for (int64_t i = 0; i < homes.count(); ++i) homes.data<uint32_t>()[i] = uint32_t(i);
    sound ? settle(random) : damage(random);
  }

  int64_t rows() const { return table->buckets * frames + spill; }

  int64_t words() const {
    TableRef shape{};
    shape.dim = static_cast<int32_t>(table->dim);
    shape.value_type = table->dtype == kF32 ? ValueType::kFloat32 : ValueType::kFloat16;
    shape.num_states = static_cast<int32_t>(table->states.size());
    for (size_t s = 0; s < table->states.size(); ++s) {
      auto const& dims = table->states[s].dims;
      shape.state_width[s] = dims.size() > 1 ? static_cast<int32_t>(dims[1]) : 1;
    }
    return record_bytes_of(shape) / 4;
  }

  void settle(Random& random) {
    for (int64_t i = 0; i < place.count(); ++i) {
      place.data<uint32_t>()[i] = random.one_in(5) ? kFreshPlace : kHomePlace;
    }
    for (int64_t b = 0; b < table->buckets; ++b) {
      for (int64_t f = 0; f < frames; ++f) {
        auto const owner = static_cast<uint32_t>(random.below(kBucketCapacity));
        auto& of_owner = place.data<uint32_t>()[b * kBucketCapacity + owner];
        owners.data<uint32_t>()[b * frames + f] = owner | (random.one_in(2) ? kDirtyFrame : 0);
        if (of_owner == kHomePlace) of_owner = static_cast<uint32_t>(f) + 1;
      }
    }
  }

  void damage(Random& random) {
    for (int64_t i = 0; i < place.count(); ++i) {
      auto const any = random.one_in(2) ? random.hostile() : random.below(frames + 2);
      place.data<int32_t>()[i] = static_cast<int32_t>(any);
    }
    for (int64_t i = 0; i < owners.count(); ++i) {
      owners.data<uint32_t>()[i] = static_cast<uint32_t>(random.bits());
    }
  }

  // As the handlers take them.
  void add(Call& call, bool index, bool with_states, bool changes, bool with_events,
           bool counts = false) const {
    auto const next = [&](Array const& array) {
      changes ? call.aliased(array) : call.operands.push_back(array);
    };
    if (index) call.operands.push_back(table->index);
    counts ? call.aliased(counters) : call.operands.push_back(counters);
    next(place);
    next(owners);
    next(values);
    for (auto const& state : states) {
      if (with_states) next(state);
    }
    if (with_events) call.aliased(events);
    call.operands.push_back(homes);
  }
};

struct Begun {
  Call call;
  std::vector<Tier> tiers;
};

// A call about some tables, up to `most` of them.
Begun begin(World& world, Random& random, int64_t most = 3) {
  Begun begun;
  std::vector<Table*> tables;
  for (auto count = random.between(1, most); count > 0; --count) {
    tables.push_back(&world[static_cast<size_t>(random.below(static_cast<int64_t>(world.size())))]);
    begun.tiers.emplace_back(*tables.back(), random);
  }
  table_attributes(begun.call, tables);
  return begun;
}

// Adds to what is checked after a call.
template <class Check>
void check_later(Call& call, Check const& check) {
  call.check = [before = call.check, check] {
    if (before) before();
    check();
  };
}

int64_t spilled_slots(Array const& spilled) {
  int64_t count = 0;
  for (int64_t i = 0; i < spilled.count(); ++i) count += spilled.data<int32_t>()[i] >= 0 ? 1 : 0;
  return count;
}

// Every row of a frame has one owner, whose place names it.
void check_frames(Tier const& tier) {
  for (int64_t slot = 0; slot < tier.place.count(); ++slot) {
    auto const place = tier.place.data<uint32_t>()[slot];
    if (place == kHomePlace || place == kFreshPlace) continue;
    expect(place <= static_cast<uint32_t>(tier.frames), "a place names a frame");
    auto const row = slot / kBucketCapacity * tier.frames + int64_t{place} - 1;
    auto const owner = tier.owners.data<uint32_t>()[row];
    expect((owner & kOwnerMask) == static_cast<uint32_t>(slot % kBucketCapacity),
           "the frame names its owner");
    expect((owner & kTakenFrame) == 0, "no frame is marked after a call");
  }
}

// Slots are distinct in each list.
struct RowList {
  Array slots, rows;
};

// How many entries of two lists count: often all, else any number.
Array add_counts(Call& call, Random& random) {
  auto const counts = call.operand(kS32, {2});
  for (int i = 0; i < 2; ++i) {
    auto const any = random.one_in(2) ? 200 : random.hostile();
    counts.data<int32_t>()[i] = static_cast<int32_t>(any);
  }
  return counts;
}

bool counts_entry(Array const& counts, int list, int64_t i) {
  return i < counts.data<int32_t>()[list];
}

RowList add_list(Call& call, Tier const& tier, Random& random) {
  auto const n = random.below(200);
  RowList list{call.operand(kS32, {n}), call.operand(kS32, {n})};
  fill_slots(random, list.slots, tier.place.count());
  fill_slots(random, list.rows, tier.rows());
  for (auto const& array : {list.slots, list.rows}) {
    std::set<int32_t> seen;
    for (int64_t i = 0; i < n; ++i) {
      if (!seen.insert(array.data<int32_t>()[i]).second) array.data<int32_t>()[i] = -1;
    }
  }
  return list;
}

}  // namespace

namespace {

void add_promoted(Call& call, Tier const& tier, Random& random) {
  tier.add(call, true, true, true, true);
  auto const n = batch_size(random);
  auto const slots = call.operand(kS32, {n});
  fill_slots(random, slots, tier.place.count());
  auto const spilled = call.result(kS32, {n}), rows = call.result(kS32, {n});
  auto const arriving = call.result(kS32, {n}), into = call.result(kS32, {n});
  auto const counts = call.result(kS32, {2});
  if (!tier.sound) return;
  check_later(call, [tier, spilled, rows, arriving, into, counts, n] {
    check_frames(tier);
    std::set<int32_t> frames;
    for (int64_t i = 0; i < n; ++i) {
      auto const slot = arriving.data<int32_t>()[i], row = into.data<int32_t>()[i];
      auto const comes = i < counts.data<int32_t>()[1];
      expect((slot >= 0) == comes && (row >= 0) == comes, "lists without a gap");
      if (!comes) continue;
      auto const place = tier.place.data<uint32_t>()[slot];
      auto const frame = slot / kBucketCapacity * tier.frames + int64_t{place} - 1;
      expect(row == frame && frames.insert(row).second, "a record comes to its own frame");
    }
    for (int64_t i = 0; i < n; ++i) {
      auto const slot = spilled.data<int32_t>()[i], row = rows.data<int32_t>()[i];
      auto const is_row = row >= 0 && row < tier.rows();
      expect(slot >= 0 ? is_row : row == -1, "a row on its way home");
    }
    auto const written = tier.events.data<uint64_t>()[kTierWrittenBack];
    expect(static_cast<uint64_t>(spilled_slots(spilled)) == written, "rows on their way home");
    expect(static_cast<uint64_t>(counts.data<int32_t>()[0]) == written, "and their number");
  });
}

void add_fetched(Call& call, Tier const& tier, bool has_keys, bool first, Random& random) {
  tier.add(call, true, true, true, true);
  auto const n = batch_size(random);
  auto const slots = call.operand(kS32, {n});
  fill_slots(random, slots, tier.place.count());
  if (has_keys) {
    auto const keys = call.operand(kU32, {n, 2});
    for (int64_t i = 0; i < n; ++i) keys.data<uint64_t>()[i] = random.bits() % 2000;
  }
  auto const places = call.result(kS32, {n});
  auto const spilled = call.result(kS32, {tier.spill});
  auto const counts = call.result(kS32, {2});
  check_later(call, [tier, places, spilled, counts, first] {
    for (int64_t i = 0; i < places.count(); ++i) {
      auto const row = places.data<int32_t>()[i];
      expect(row < tier.rows() || (first && row == kLostPlace), "a place is a row");
    }
    auto const here = spilled_slots(spilled), all = int64_t{counts.data<int32_t>()[1]};
    expect(here == counts.data<int32_t>()[0], "rows that were fetched");
    expect(!first || here == std::min<int64_t>(tier.spill, all), "as many as there is room for");
  });
}

void add_homes_and_rows(Call& call, Tier const& tier) {
  call.aliased(tier.homes);
  call.operands.push_back(tier.values);
  for (auto const& state : tier.states) call.operands.push_back(state);
}

void add_written(Call& call, Tier const& tier, Random& random) {
  add_homes_and_rows(call, tier);
  auto const counts = add_counts(call, random);
  auto const [slots, rows] = add_list(call, tier, random);
  check_later(call, [tier, counts, slots = slots, rows = rows] {
    auto const row_bytes = tier.values.bytes() / static_cast<size_t>(tier.rows());
    auto const record_bytes = tier.homes.bytes() / static_cast<size_t>(tier.place.count());
    for (int64_t i = 0; i < slots.count() && counts_entry(counts, 0, i); ++i) {
      auto const slot = slots.data<int32_t>()[i], row = rows.data<int32_t>()[i];
      if (slot < 0 || slot >= tier.place.count() || row < 0 || row >= tier.rows()) continue;
      expect(memcmp(tier.homes.data<uint8_t>() + static_cast<size_t>(slot) * record_bytes,
                    tier.values.data<uint8_t>() + static_cast<size_t>(row) * row_bytes,
                    row_bytes) == 0,
             "a row in its record");
    }
  });
}

void add_swapped(Call& call, Tier const& tier, Random& random) {
  add_homes_and_rows(call, tier);
  auto const counts = add_counts(call, random);
  add_list(call, tier, random);
  auto const [slots, into] = add_list(call, tier, random);
  auto const before = tier.values.copy();
  check_later(call, [tier, counts, into = into, before] {
    std::set<int64_t> changed;
    for (int64_t i = 0; i < into.count() && counts_entry(counts, 1, i); ++i) {
      changed.insert(into.data<int32_t>()[i]);
    }
    auto const bytes = before.bytes() / static_cast<size_t>(tier.rows());
    for (int64_t row = 0; row + 1 < tier.rows(); ++row) {  // the last one holds a mark
      if (changed.count(row) > 0) continue;
      auto const first = static_cast<size_t>(row) * bytes;
      expect(
          memcmp(tier.values.data<uint8_t>() + first, before.data<uint8_t>() + first, bytes) == 0,
          "a row that no record goes to");
    }
  });
}

void add_settled(Call& call, Tier const& tier, Random& random) {
  call.aliased(tier.values);
  for (auto const& state : tier.states) call.aliased(state);
  call.operands.push_back(tier.homes);
  add_counts(call, random);
  add_list(call, tier, random);
  auto const before = tier.homes.copy();
  check_later(call, [homes = tier.homes, before] {
    expect(memcmp(homes.data<uint8_t>(), before.data<uint8_t>(), homes.bytes()) == 0,
           "homes stay as they are");
  });
}

// A call whose results lie in host memory: it has no scratch.
template <class Add>
Call make_homes_call(World& world, Random& random, Add const& add) {
  auto [call, tiers] = begin(world, random);
  for (auto const& tier : tiers) add(call, tier, random);
  finish(call);
  call.results.pop_back();
  return call;
}

}  // namespace

Call make_promote(World& world, Random& random) {
  auto [call, tiers] = begin(world, random);
  scalar(call, "purpose", random.below(2));
  for (auto const& tier : tiers) add_promoted(call, tier, random);
  finish(call);
  return call;
}

Call make_fetch(World& world, Random& random) {
  auto [call, tiers] = begin(world, random);
  auto const has_keys = random.one_in(2);
  scalar(call, "has_keys", has_keys ? 1 : 0);
  auto const round = call.operand(kS32, {1});
  auto const number = static_cast<int32_t>(random.one_in(3) ? random.hostile() : 0);
  round.data<int32_t>()[0] = number;
  for (auto const& tier : tiers) add_fetched(call, tier, has_keys, number == 0, random);
  finish(call);
  return call;
}

Call make_write_back(World& world, Random& random) {
  return make_homes_call(world, random, add_written);
}

Call make_swap_rows(World& world, Random& random) {
  return make_homes_call(world, random, add_swapped);
}

Call make_settle(World& world, Random& random) {
  auto [call, tiers] = begin(world, random);
  for (auto const& tier : tiers) add_settled(call, tier, random);
  finish(call);
  return call;
}

Call make_tier_rows(World& world, Random& random) {
  auto [call, tiers] = begin(world, random);
  auto const serves = random.one_in(2);
  scalar(call, "serves", serves ? 1 : 0);
  for (auto const& tier : tiers) tier.add(call, false, false, false, false, !serves);
  Attribute features{"features", true, {}, {}, false};
  for (auto count = random.below(4); count > 0; --count) {
    auto const pooling = random.below(3);
    auto const bag_size = pooling == 0 ? 1 : random.of<int64_t>({1, 3});
    auto const bags = batch_size(random) / bag_size, n = bags * bag_size;
    auto const number = random.below(static_cast<int64_t>(tiers.size()));
    auto const& tier = tiers[static_cast<size_t>(number)];
    std::vector<int64_t> fields(kNumFeatureFields, 0);
    fields[kFeatureTable] = number;
    fields[kFeaturePooling] = pooling;
    fields[kFeatureBagSize] = bag_size;
    fields[kFeatureRows + kRowsArray] = -1;
    features.integers.insert(features.integers.end(), fields.begin(), fields.end());
    call.operands.push_back(ids_of(random, n));
    fill_slots(random, call.operand(kS32, {n}), tier.place.count());
    call.result(kF32, {bags, tier.table->dim});
    if (pooling == 2) call.result(kF32, {bags});
  }
  call.attributes.push_back(features);
  if (!serves) {
    finish(call);
    return call;
  }
  auto const done = call.result(kU32, {1});
  finish(call);
  call.check = [done] { expect(done.data<uint32_t>()[0] == 0, "what a later change waits for"); };
  return call;
}

Call make_tier_gather(World& world, Random& random) {
  auto [call, tiers] = begin(world, random, 1);
  auto const& tier = tiers[0];
  tier.add(call, true, true, false, false);
  auto const n = batch_size(random);
  auto const slots = call.operand(kS32, {n});
  fill_slots(random, slots, tier.place.count());
  auto const values = call.result(tier.values.dtype, {n, tier.table->dim});
  for (auto const& state : tier.states) {
    auto dims = state.dims;
    dims[0] = n;
    call.result(state.dtype, dims);
  }
  finish(call);
  call.check = [tier = tier, slots, values, n] {
    auto const row_bytes = values.bytes() / static_cast<size_t>(std::max<int64_t>(n, 1));
    for (int64_t i = 0; i < n; ++i) {
      auto const slot = slots.data<int32_t>()[i];
      if (slot >= 0 && slot < tier.place.count()) continue;
      auto const* const row = values.data<uint8_t>() + static_cast<size_t>(i) * row_bytes;
      for (size_t byte = 0; byte < row_bytes; ++byte) expect(row[byte] == 0, "no row is zeros");
    }
  };
  return call;
}

// Notes may be anything; where they are rows of the table, their records are as well.
Call make_depart(World& world, Random& random) {
  auto [call, tiers] = begin(world, random, 1);
  auto const& tier = tiers[0];
  call.operands.push_back(tier.counters);
  call.operands.push_back(tier.owners);
  call.operands.push_back(tier.values);
  for (auto const& state : tier.states) call.operands.push_back(state);
  call.aliased(tier.events);
  call.operands.push_back(tier.homes);
  auto const room = random.of<int64_t>({1, 5, 600});
  Array const notes(kU32, {1 + room, kDepartureWords}), records(kU32, {room, tier.words()});
  call.aliased(notes);
  call.aliased(records);
  memset(records.memory.get(), 0xff, records.bytes());
  auto* const ring = notes.data<uint32_t>();
  for (int64_t i = 0; i < notes.count(); ++i) ring[i] = static_cast<uint32_t>(random.hostile());
  auto const sound = random.one_in(2);
  if (sound) ring[kRingCount] = static_cast<uint32_t>(random.below(room + 1));
  for (uint32_t i = 0; i < room; ++i) {
    auto& note = *departure_at(ring, i);
    if (random.one_in(2)) note.slot = static_cast<int32_t>(random.below(tier.place.count()));
    note.place = random.one_in(2) ? kHomePlace : static_cast<uint32_t>(random.below(70));
  }
  auto const count = std::min<uint32_t>(ring[kRingCount], static_cast<uint32_t>(room));
  auto const copied = std::min(ring[kRingCopied], count);
  finish(call);
  call.check = [tier = tier, notes, records, count, copied] {
    auto* const ring = notes.data<uint32_t>();
    auto const bytes = records.bytes() / static_cast<size_t>(records.dims[0]);
    expect(ring[kRingCopied] == count && ring[kRingRefused] == 0, "all records are there");
    expect(tier.events.data<uint64_t>()[kTierDeparted] == count - copied, "rows are counted");
    for (int64_t i = 0; i < records.dims[0]; ++i) {
      auto const* const record = records.data<uint8_t>() + static_cast<size_t>(i) * bytes;
      auto const& note = *departure_at(ring, static_cast<uint32_t>(i));
      if (i < copied || i >= count) {
        expect(record[0] == 0xff && record[bytes - 1] == 0xff, "another record stays");
      } else if (note.slot < 0 || note.slot >= tier.place.count()) {
        for (size_t byte = 0; byte < bytes; ++byte) expect(record[byte] == 0, "no row is zeros");
      } else if (note.place == kHomePlace) {
        auto const* const home =
            tier.homes.data<uint8_t>() + static_cast<size_t>(note.slot) * bytes;
        expect(memcmp(record, home, bytes) == 0, "a row from home");
      }
    }
  };
  return call;
}

}  // namespace dynemb::fuzz
