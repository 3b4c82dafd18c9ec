// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <set>

#include "core/rule.h"
#include "core/score.h"
#include "tests/fuzz/data.h"

namespace dynemb::fuzz {
namespace {

struct OneTable {
  Call call;
  Table* table;
};

OneTable about_one(World& world, Random& random, Parts parts, bool aliased) {
  auto* const table = &world[static_cast<size_t>(random.below(static_cast<int64_t>(world.size())))];
  OneTable one{{}, table};
  table_attributes(one.call, {table});
  add_tables(one.call, {table}, parts, aliased);
  return one;
}

std::vector<int64_t> state_shape(Array const& state, int64_t n) {
  auto shape = state.dims;
  shape[0] = n;
  return shape;
}

}  // namespace

Call make_gather(World& world, Random& random) {
  auto [call, table] = about_one(world, random, {true, true, false}, true);
  auto const n = batch_size(random);
  auto const slots = call.operand(kS32, {n});
  fill_slots(random, slots, table->slots());
  auto const rows = call.result(kF32, {n, table->dim});
  for (auto const& state : table->states) call.result(kF32, state_shape(state, n));
  auto const scores = call.result(kU32, {n, 2});
  finish(call);
  call.check = [table = table, slots, rows, scores, n] {
    for (int64_t i = 0; i < n; ++i) {
      auto const slot = slots.data<int32_t>()[i];
      auto const live = slot >= 0 && slot < table->slots();
      auto const score = scores.data<uint64_t>()[i];
      auto const stored = live ? table->score(slot) : 0;
      expect(score == stored, "a score that was read");
      auto const* const row = rows.data<float>() + i * table->dim;
      if (!live) {
        auto const zero = std::all_of(row, row + table->dim, [](float x) { return x == 0.0f; });
        expect(zero, "a row that there is not");
      } else if (table->dtype == kF32) {
        expect(memcmp(row, table->row(slot).data(), size_t(table->dim) * 4) == 0, "a row");
      }
    }
  };
  return call;
}

Call make_scatter(World& world, Random& random) {
  auto const rounds = random.below(2);
  auto [call, table] = about_one(world, random, {true, true, rounds != 0}, true);
  auto const n = batch_size(random);
  auto const last_wins = random.below(2);
  auto const slots = call.operand(kS32, {n});
  fill_slots(random, slots, table->slots());
  std::set<int32_t> used;
  for (int64_t i = 0; i < n && last_wins == 0; ++i) {  // else they have to be distinct
    auto& slot = slots.data<int32_t>()[i];
    if (!used.insert(slot).second) slot = -1;
  }
  auto parts = random.below(64);
  if ((parts & 1) != 0) fill_floats(random, call.operand(kF32, {n, table->dim}));
  auto const rows = (parts & 1) != 0 ? call.operands.back() : Array();
  if ((parts & 2) != 0) {
    auto const scores = call.operand(kU32, {n, 2});
    for (int64_t i = 0; i < n; ++i) scores.data<uint64_t>()[i] = random.bits() >> 1;
    if (n > 0) table->is_sound = false;  // scores where no key is
  }
  for (size_t s = 0; s < table->states.size(); ++s) {
    if ((parts >> (2 + s) & 1) == 0) continue;
    fill_floats(random, call.operand(kF32, state_shape(table->states[s], n)));
  }
  scalar(call, "parts", parts);
  scalar(call, "last_wins", last_wins);
  scalar(call, "rounds", rounds);
  finish(call);
  if ((parts & 1) == 0 || table->dtype != kF32) return call;
  auto const before = table->values.copy();
  call.check = [table = table, slots, rows, before, n] {
    auto const expected = before;
    for (int64_t i = 0; i < n; ++i) {
      auto const slot = slots.data<int32_t>()[i];
      if (slot < 0 || slot >= table->slots()) continue;
      memcpy(expected.data<float>() + slot * table->dim, rows.data<float>() + i * table->dim,
             static_cast<size_t>(table->dim) * 4);
    }
    expect(memcmp(expected.data<void>(), table->values.data<void>(), expected.bytes()) == 0,
           "rows that were written");
  };
  return call;
}

Call make_erase(World& world, Random& random) {
  auto [call, table] = about_one(world, random, {false, false, true, false, true}, true);
  auto const ids = call.operands.emplace_back(ids_of(random, batch_size(random)));
  call.result(kS32, {ids.dims[0]});
  finish(call);
  if (!table->is_sound) return call;
  call.check = [table = table, ids] {
    for (int64_t i = 0; i < ids.dims[0]; ++i) {
      auto const key = key_of(ids, i);
      expect(has_no_row(key) || table->slot_of(key) < 0, "an id that was erased");
    }
    expect(table->counter(kRows) == static_cast<uint64_t>(table->live()), "live rows");
    table->check_log();
  };
  return call;
}

// Draws any bits: large and small numbers, infinite ones, and NaN.
void fill_hostile_floats(Random& random, Array const& array) {
  if (random.one_in(2)) return fill_floats(random, array);
  for (int64_t i = 0; i < array.count(); ++i) {
    auto const special = random.of<uint32_t>({0x7f800000u, 0xff800000u, 0x7fc00000u, 1, 0});
    auto const bits = random.one_in(3) ? special : static_cast<uint32_t>(random.bits());
    array.data<uint32_t>()[i] = bits;
  }
}

// Any numbers: digits and limits that no row has, and norms that are none.
Call make_rule(World& world, Random& random, bool erases) {
  auto [call, table] = about_one(world, random, {false, false, true, false, erases}, erases);
  auto const words = call.operand(kU32, {kNumRuleWords});
  for (int i = 0; i < kNumRuleWords; ++i) {
    auto const number = random.one_in(2) ? random.bits() : random.below(4) * 0x55555555u;
    words.data<uint32_t>()[i] = static_cast<uint32_t>(number);
  }
  auto const fields = random.below(32);
  if ((fields & kNormBelow) != 0) fill_hostile_floats(random, call.operand(kF32, {table->slots()}));
  auto const result = erases ? call.result(kU32, {1}) : call.result(kU32, {kNumCountWords});
  scalar(call, "fields", fields);
  finish(call);
  if (!table->is_sound) return call;
  auto const live = table->live();
  call.check = [table = table, result, live, erases] {
    auto const* const counts = result.data<uint32_t>();
    if (erases) {
      expect(table->live() == live - counts[0], "rows that a rule removed");
      expect(table->counter(kRows) == static_cast<uint64_t>(table->live()), "live rows");
      table->check_log();
      return;
    }
    int64_t total = 0;
    for (int i = 0; i < 2 * kRankBins; ++i) total += counts[i];
    expect(total <= live, "rows that a rule counted");
  };
  return call;
}

Call make_decay(World& world, Random& random) {
  auto [call, table] = about_one(world, random, {false, false, false}, true);
  auto const factor = call.operand(kF32, {1});
  fill_hostile_floats(random, factor);
  finish(call);
  auto const live = table->live();
  call.check = [table = table, live] { expect(table->live() == live, "rows after a decay"); };
  return call;
}

Call make_export(World& world, Random& random) {
  auto [call, table] = about_one(world, random, {false, false, false}, false);
  auto const first = call.operand(kS32, {1}), least = call.operand(kU32, {2});
  first.data<int32_t>()[0] =
      static_cast<int32_t>(random.one_in(3) ? random.hostile() : random.below(3));
  least.data<uint64_t>()[0] = random.of<uint64_t>({0, 1, 5, random.bits() >> 1});
  auto const room = random.below(5) * kBucketCapacity;
  auto const keys = call.result(kU32, {room, 2});
  call.result(kU32, {room, 2});
  auto const slots = call.result(kS32, {room});
  auto const count = call.result(kS32, {1});
  finish(call);
  call.check = [table = table, first, least, keys, slots, count, room] {
    auto const begin = int64_t{first.data<int32_t>()[0]} * kBucketCapacity;
    int64_t expected = 0;
    for (auto slot = std::max<int64_t>(begin, 0); slot < std::min(begin + room, table->slots());
         ++slot) {
      auto const& entry = table->entry(slot);
      if (entry.score == kEmptyScore || entry.score < least.data<uint64_t>()[0]) continue;
      expect(slots.data<int32_t>()[expected] == slot, "the slot of an exported row");
      expect(keys.data<uint64_t>()[expected] == entry.key, "the key of an exported row");
      ++expected;
    }
    expect(count.data<int32_t>()[0] == expected, "how many rows were exported");
    for (auto i = expected; i < room; ++i) expect(slots.data<int32_t>()[i] == -1, "unused");
  };
  return call;
}

}  // namespace dynemb::fuzz
