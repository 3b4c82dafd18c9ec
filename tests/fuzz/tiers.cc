// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/fuzz/tiers.cc: random calls about tiered tables; places and owners may be anything.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "core/tiers/tier_args.h"
#include "tests/fuzz/tier.h"

namespace dynemb::fuzz {
namespace {

// Draws how many entries of two lists count: often all, else any number.
Array add_counts(Call& call, Random& random) {
  auto const counts = call.operand(kS32, {2});
  for (int i = 0; i < 2; ++i) {
    auto const any = random.one_in(2) ? 200 : random.hostile();
    counts.data<int32_t>()[i] = static_cast<int32_t>(any);
  }
  return counts;
}

RowList add_list(Call& call, Tier const& tier, Random& random) {
  auto const n = random.below(200);
  RowList list{call.operand(kS32, {n}), call.operand(kS32, {n})};
  fill_slots(random, list.slots, tier.slots());
  fill_slots(random, list.rows, tier.rows());
  for (auto const& array : {list.slots, list.rows}) {
    std::set<int32_t> seen;
    for (int64_t i = 0; i < n; ++i) {
      if (!seen.insert(array.data<int32_t>()[i]).second) array.data<int32_t>()[i] = -1;
    }
  }
  return list;
}

// Slots and rows of the entries that count, and that the table has.
std::map<int64_t, int64_t> pairs_of(Tier const& tier, RowList const& list, int32_t entries) {
  std::map<int64_t, int64_t> pairs;
  for (int64_t i = 0; i < std::min<int64_t>(entries, list.slots.count()); ++i) {
    if (tier.has(list.slot(i)) && tier.has_row(list.row(i))) pairs[list.slot(i)] = list.row(i);
  }
  return pairs;
}

// By row of the arrays: the slot of the record that is copied to it.
std::map<int64_t, int64_t> slots_by_row(std::map<int64_t, int64_t> const& pairs) {
  std::map<int64_t, int64_t> slots;
  for (auto const& [slot, row] : pairs) slots[row] = slot;
  return slots;
}

// As promote makes them: no slot is in both lists, and a row only at the same place of both.
void part_lists(RowList const& leaving, RowList const& arriving) {
  std::set<int32_t> slots;
  std::map<int32_t, int64_t> rows;
  for (int64_t i = 0; i < leaving.slots.count(); ++i) {
    slots.insert(leaving.slot(i));
    rows[leaving.row(i)] = i;
  }
  for (int64_t i = 0; i < arriving.slots.count(); ++i) {
    auto const other = rows.find(arriving.row(i));
    auto const both = slots.count(arriving.slot(i)) > 0;
    if (both || (other != rows.end() && other->second != i)) arriving.slots.data<int32_t>()[i] = -1;
  }
}

void add_homes_and_rows(Call& call, Tier const& tier) {
  call.aliased(tier.homes);
  call.operands.push_back(tier.values);
  for (auto const& state : tier.states) call.operands.push_back(state);
}

// Each slot of the list has the row as it was before, and all other records stay.
void check_written(Tier const& before, Tier const& after,
                   std::map<int64_t, int64_t> const& leaving) {
  auto const bytes = static_cast<size_t>(after.words()) * 4;
  for (int64_t slot = 0; slot < after.slots(); ++slot) {
    auto const found = leaving.find(slot);
    auto const* const record = after.record(slot);
    expect(found != leaving.end() ? before.equals_record(found->second, record)
                                  : memcmp(record, before.record(slot), bytes) == 0,
           "a row in its record, and other records as they were");
  }
}

void add_written(Call& call, Tier const& tier, Random& random) {
  add_homes_and_rows(call, tier);
  auto const counts = add_counts(call, random);
  auto const list = add_list(call, tier, random);
  check_later(call, [tier, before = tier.copy(), counts, list] {
    check_written(before, tier, pairs_of(tier, list, counts.data<int32_t>()[0]));
  });
}

void add_swapped(Call& call, Tier const& tier, Random& random) {
  add_homes_and_rows(call, tier);
  auto const counts = add_counts(call, random);
  auto const leaving = add_list(call, tier, random);
  auto const arriving = add_list(call, tier, random);
  auto const apart = random.one_in(2);
  if (apart) part_lists(leaving, arriving);
  check_later(call, [tier, before = tier.copy(), counts, leaving, arriving, apart] {
    auto const* const entries = counts.data<int32_t>();
    if (apart) check_written(before, tier, pairs_of(tier, leaving, entries[0]));
    auto const comes = slots_by_row(pairs_of(tier, arriving, entries[1]));
    for (int64_t row = 0; row + 1 < tier.rows(); ++row) {  // the last one holds a mark
      if (tier.equals(row, before, row)) continue;
      auto const slot = comes.find(row);
      expect(slot != comes.end(), "a row that no record goes to");
      expect(!apart || tier.equals_record(row, before.record(slot->second)), "a record that comes");
    }
  });
}

void add_settled(Call& call, Tier const& tier, Random& random) {
  call.aliased(tier.values);
  for (auto const& state : tier.states) call.aliased(state);
  call.operands.push_back(tier.homes);
  auto const counts = add_counts(call, random);
  auto const list = add_list(call, tier, random);
  check_later(call, [tier, before = tier.copy(), counts, list] {
    check_written(before, tier, {});
    auto const comes = slots_by_row(pairs_of(tier, list, counts.data<int32_t>()[1]));
    for (int64_t row = 0; row < tier.rows(); ++row) {
      auto const slot = comes.find(row);
      expect(slot != comes.end() ? tier.equals_record(row, before.record(slot->second))
                                 : tier.equals(row, before, row),
             "a record in its row, and other rows as they were");
    }
  });
}

// The same moves, in a call that changes homes though they are no result of it.
void add_swapped_beside(Call& call, Tier const& tier, Random& random) {
  call.aliased(tier.values);
  for (auto const& state : tier.states) call.aliased(state);
  call.operands.push_back(tier.homes);
  auto const counts = add_counts(call, random);
  auto const leaving = add_list(call, tier, random);
  auto const arriving = add_list(call, tier, random);
  check_later(call, [tier, before = tier.copy(), counts, leaving, arriving] {
    auto const* const entries = counts.data<int32_t>();
    check_written(before, tier, pairs_of(tier, leaving, entries[0]));
    auto const comes = slots_by_row(pairs_of(tier, arriving, entries[1]));
    for (int64_t row = 0; row < tier.rows(); ++row) {
      auto const slot = comes.find(row);
      expect(slot != comes.end() ? tier.equals_record(row, tier.record(slot->second))
                                 : tier.equals(row, before, row),
             "a record in its row, and other rows as they were");
    }
  });
}

Call make_swap_beside(World& world, Random& random) {
  auto [call, tiers] = begin_tier_call(world, random);
  auto const passed = random.below(3);
  scalar(call, "passed", passed);
  for (auto const& tier : tiers) add_swapped_beside(call, tier, random);
  for (int64_t i = 0; i < passed; ++i) call.aliased(Array(kF32, {random.below(50)}));
  finish(call);
  return call;
}

// A call that only says where a swap begins or ends.
Call with_check_of_nothing(Call call) {
  std::vector<Array> before;
  for (auto const& array : call.operands) before.push_back(array.copy());
  call.check = [operands = call.operands, before] {
    for (size_t i = 0; i < before.size(); ++i) {
      auto const bytes = before[i].bytes();
      expect(memcmp(operands[i].memory.get(), before[i].memory.get(), bytes) == 0, "no change");
    }
  };
  return call;
}

// A call whose results lie in host memory: it has no scratch.
template <class Add>
Call make_homes_call(World& world, Random& random, Add const& add) {
  auto [call, tiers] = begin_tier_call(world, random);
  for (auto const& tier : tiers) add(call, tier, random);
  finish(call);
  call.results.pop_back();
  return call;
}

}  // namespace

Call make_write_back(World& world, Random& random) {
  return make_homes_call(world, random, add_written);
}

Call make_swap_rows(World& world, Random& random) {
  return make_homes_call(world, random, add_swapped);
}

Call make_run_swap(World& world, Random& random) { return make_swap_beside(world, random); }

Call make_begin_swap(World& world, Random& random) {
  return with_check_of_nothing(make_swap_beside(world, random));
}

Call make_end_swap(World& world, Random& random) {
  auto call = make_begin_swap(world, random);
  call.op = "begin_swap";
  expect(!run(call).has_value(), "a begin as it should be was refused");
  return call;
}

Call make_settle(World& world, Random& random) {
  auto [call, tiers] = begin_tier_call(world, random);
  for (auto const& tier : tiers) add_settled(call, tier, random);
  finish(call);
  return call;
}

Call make_tier_rows(World& world, Random& random) {
  auto [call, tiers] = begin_tier_call(world, random);
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
    fill_slots(random, call.operand(kS32, {n}), tier.slots());
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

// Row `i` of what was found is that of the slot: in its frame or at home; or zeros.
void check_gathered(Tier const& tier, Tier const& found, int64_t slot, int64_t i) {
  if (!tier.has(slot)) {
    std::vector<uint8_t> const zeros(static_cast<size_t>(tier.words()) * 4, 0);
    return expect(found.equals_record(i, zeros.data()), "no row is zeros");
  }
  if (auto const row = tier.frame_of(slot); row >= 0) {
    expect(tier.equals(row, found, i), "a row in its frame");
  } else if (!tier.is_fresh(slot)) {
    expect(found.equals_record(i, tier.record(slot)), "a row at home");
  }
}

Call make_tier_gather(World& world, Random& random) {
  auto [call, tiers] = begin_tier_call(world, random, 1);
  auto const& tier = tiers[0];
  tier.add(call, true, true, false, false);
  auto const n = batch_size(random);
  auto const slots = call.operand(kS32, {n});
  fill_slots(random, slots, tier.slots());
  auto found = tier;  // with a row for each slot
  found.values = call.result(tier.values.dtype, {n, tier.table->dim});
  for (auto& state : found.states) {
    state.dims[0] = n;
    state = call.result(state.dtype, state.dims);
  }
  finish(call);
  call.check = [tier = tier, found, slots, n] {
    for (int64_t i = 0; i < n; ++i) check_gathered(tier, found, slots.data<int32_t>()[i], i);
  };
  return call;
}

// Notes may be anything; where they are rows of the table, their records are as well.
Call make_depart(World& world, Random& random) {
  auto [call, tiers] = begin_tier_call(world, random, 1);
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
    if (random.one_in(2)) note.slot = static_cast<int32_t>(random.below(tier.slots()));
    note.location = random.one_in(2) ? kHomeLocation : static_cast<uint32_t>(random.below(70));
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
      } else if (note.slot < 0 || note.slot >= tier.slots()) {
        for (size_t byte = 0; byte < bytes; ++byte) expect(record[byte] == 0, "no row is zeros");
      } else if (auto const row = tier.frame_at(note.slot, note.location); row >= 0) {
        expect(tier.equals_record(row, record), "a row from its frame");
      } else if (!is_fresh_location(note.location)) {
        expect(memcmp(record, tier.record(note.slot), bytes) == 0, "a row from home");
      }
    }
  };
  return call;
}

}  // namespace dynemb::fuzz
