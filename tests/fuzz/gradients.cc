// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <set>
#include <tuple>

#include "tests/fuzz/features.h"

namespace dynemb::fuzz {
namespace {

struct Given {
  Feature feature;
  Array slots;
};

// Adds features with slots, as update, reduce and sum_rows take them.
std::vector<Given> add_gradients(Call& call, Random& random, std::vector<int64_t> const& dims,
                                 std::vector<int64_t> const& slots, bool with_ids) {
  Attribute features{"features", true, {}, {}, false};
  std::vector<Given> given;
  for (auto& feature : make_features(random, dims.size())) {
    auto const t = static_cast<size_t>(feature.table);
    if (with_ids) call.operands.push_back(ids_of(random, feature.num_ids));
    auto const own = call.operand(kS32, {feature.num_ids});
    fill_slots(random, own, slots[t]);
    auto const gradients = call.operand(float_type(random), {feature.num_bags, dims[t]});
    fill_floats(random, gradients);
    add_bags(call, feature);
    if (feature.pooling == 2) fill_floats(random, call.operand(kF32, {feature.num_bags}));
    describe(feature, features.integers);
    given.push_back({feature, own});
  }
  call.attributes.push_back(features);
  return given;
}

std::vector<Given> add_gradients(Call& call, Random& random, std::vector<Table*> const& tables) {
  std::vector<int64_t> dims, slots;
  for (auto const* const table : tables) {
    dims.push_back(table->dim);
    slots.push_back(table->slots());
  }
  return add_gradients(call, random, dims, slots, true);
}

// Of one table: which slots its features name, and gradients that have none.
Named named_by(std::vector<Given> const& given, size_t table, int64_t num_slots) {
  Named all(Array(kS32, {0}), num_slots);
  for (auto const& one : given) {
    if (static_cast<size_t>(one.feature.table) != table) continue;
    auto const nothing = one.feature.num_bags == 0;  // no gradients, so no slot has one
    auto const own = Named(one.slots, nothing ? 0 : num_slots);
    all.slots.insert(own.slots.begin(), own.slots.end());
    all.foreign += own.foreign;
  }
  return all;
}

// Makes a stamp of the latest lookup of a table, of one before it, of another state, or of any
// words.
Stamp make_stamp(Random& random, Table const& table) {
  auto const ago = static_cast<uint64_t>(random.below(2 * kNumNonces));
  auto const number = table.counter(kMoment) - ago;
  auto const place = static_cast<Counter>(kNonces + number % kNumNonces);
  Stamp stamp{table.counter(kStamp), {number, table.counter(place), random.bits()}};
  if (random.one_in(6)) stamp.run = random.bits();
  if (random.one_in(6)) stamp.moment.nonce = random.one_in(2) ? 0 : random.bits();
  if (random.one_in(6)) stamp.moment.number = random.bits();
  return stamp;
}

// Whether the state of a table is one that the lookup of a stamp has led to.
bool leads_to(Stamp const& stamp, Table const& table) {
  auto const nonce = stamp.moment.nonce;
  auto const place = kNonces + stamp.moment.number % kNumNonces;
  auto const is_known =
      nonce == table.counter(kNonce) || nonce == table.counter(static_cast<Counter>(place));
  return nonce != 0 && stamp.run == table.counter(kStamp) && is_known;
}

// Adds stamps of a lookup, or none. Returns of each table whether they are its own.
std::vector<bool> add_stamps(Call& call, Random& random, std::vector<Table*> const& tables) {
  std::vector<bool> current(tables.size(), true);
  auto const stamped = random.below(2);
  scalar(call, "stamped", stamped);
  scalar(call, "joined", random.below(2));
  if (stamped == 0) return current;
  constexpr int64_t kWords = sizeof(Stamp) / 4;
  auto const stamps = call.operand(kU32, {static_cast<int64_t>(tables.size()), kWords});
  for (size_t t = 0; t < tables.size(); ++t) {
    stamps.data<Stamp>()[t] = make_stamp(random, *tables[t]);
    current[t] = leads_to(stamps.data<Stamp>()[t], *tables[t]);
  }
  return current;
}

Call make_update_of(World& world, Random& random, int64_t num_hyper) {
  Call call;
  auto const tables = all_of(world);
  table_attributes(call, tables);
  auto const hyper = call.operand(kF32, {static_cast<int64_t>(world.size()), num_hyper});
  fill_floats(random, hyper);
  auto const current = add_stamps(call, random, tables);
  add_tables(call, tables, {true, true, true}, true);
  auto const given = add_gradients(call, random, tables);
  finish(call);
  if (!are_sound(tables)) return call;
  std::vector<Table> before;
  for (auto const* const table : tables) {
    before.push_back(*table);
    before.back().values = table->values.copy();
    before.back().counters = table->counters.copy();
  }
  call.check = [tables, before, given, current] {
    for (size_t t = 0; t < tables.size(); ++t) {
      auto const& [now, was] = std::tie(*tables[t], before[t]);
      auto const named = named_by(given, t, current[t] ? now.slots() : 0);
      for (int64_t slot = 0; slot < now.slots(); ++slot) {
        expect(named.slots.count(slot) > 0 || now.row(slot) == was.row(slot),
               "a row that no gradient was for has changed");
      }
      auto const lost = now.counter(kLostUpdates) - was.counter(kLostUpdates);
      auto const left = was.counter(kLeft) != 0;
      expect(left ? lost >= named.foreign : lost == named.foreign, "gradients that were lost");
      expect(now.counter(kStep) == was.counter(kStep) + (current[t] ? 1 : 0), "steps");
    }
  };
  return call;
}

}  // namespace

Call make_update(World& world, Random& random) {
  return make_update_of(world, random, kNumHyperParameters);
}

Call make_update_any(World& world, Random& random) {
  return make_update_of(world, random, kNumAnyHyper);
}

Call make_reduce(World& world, Random& random) {
  Call call;
  auto const tables = all_of(world);
  table_attributes(call, tables);
  scalar(call, "counts_step", random.below(2));
  auto const current = add_stamps(call, random, tables);
  add_tables(call, tables, {false, false, true}, true);
  auto const given = add_gradients(call, random, tables);
  std::vector<Array> unique;
  for (size_t t = 0; t < tables.size(); ++t) {
    int64_t room = 0;
    for (auto const& one : given) {
      if (static_cast<size_t>(one.feature.table) == t) room += one.feature.num_ids;
    }
    unique.push_back(call.result(kS32, {room}));
    call.result(kF32, {room, tables[t]->dim});
  }
  finish(call);
  if (!are_sound(tables)) return call;
  call.check = [tables, given, unique, current] {
    for (size_t t = 0; t < tables.size(); ++t) {
      auto const named = named_by(given, t, current[t] ? tables[t]->slots() : 0);
      std::set<int64_t> seen;
      for (int64_t i = 0; i < unique[t].count(); ++i) {
        auto const slot = unique[t].data<int32_t>()[i];
        if (slot == -1) continue;
        expect(named.slots.count(slot) == 1 && seen.insert(slot).second, "a unique slot");
      }
      auto const left = tables[t]->counter(kLeft) != 0;
      expect(left || seen.size() == named.slots.size(), "a slot without a sum");
    }
  };
  return call;
}

namespace {

// Of one feature, any numbers: a CPU does not read them.
void add_order(Call& call, Random& random, std::vector<Given> const& given) {
  auto const ordered = given.size() == 1 && random.one_in(2);
  scalar(call, "ordered", ordered ? 1 : 0);
  for (int i = 0; ordered && i < 2; ++i) {
    auto const numbers = call.operand(kS32, given[0].slots.dims);
    for (int64_t at = 0; at < numbers.count(); ++at) {
      numbers.data<int32_t>()[at] = static_cast<int32_t>(random.hostile());
    }
  }
}

}  // namespace

Call make_sum_rows(World& world, Random& random) {
  Call call;
  table_attributes(call, all_of(world));
  Attribute records{"sums", true, {}, {}, false};
  std::vector<int64_t> dims, groups;
  std::vector<Array> sums;
  for (auto const& table : world) {
    auto const own = random.below(table.slots() + 1);
    groups.push_back(own);
    dims.push_back(table.dim);
    records.integers.insert(records.integers.end(), {own, table.dim, -1, 0, 0, 0, 0});
    auto* const fields = records.integers.data() + records.integers.size() - kNumRowsFields;
    auto const rows = sums.empty() ? place_rows(random, own, table.dim, kF32, fields)
                                   : Array(kF32, {own, table.dim});
    memset(rows.memory.get(), 0, rows.bytes());
    sums.push_back(call.results.emplace_back(rows));
  }
  call.attributes.push_back(records);
  auto const given = add_gradients(call, random, dims, groups, false);
  add_order(call, random, given);
  finish(call);
  call.check = [sums, dims, given, groups] {
    for (size_t t = 0; t < sums.size(); ++t) {
      if (sums[t].dims.size() != 2) continue;
      auto const named = named_by(given, t, groups[t]);
      for (int64_t group = 0; group < groups[t]; ++group) {
        auto const* const row = sums[t].data<float>() + group * dims[t];
        auto const zero = std::all_of(row, row + dims[t], [](float x) { return x == 0.0f; });
        expect(named.slots.count(group) > 0 || zero, "a sum of a group without rows");
      }
    }
  };
  return call;
}

}  // namespace dynemb::fuzz
