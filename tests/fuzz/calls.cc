// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/fuzz/calls.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/keys.h"
#include "core/rule.h"
#include "tests/fuzz/parts.h"
#include "tests/fuzz/tier_calls.h"

namespace dynemb::fuzz {
// ---- attributes and data ------------------------------------------------------------------------

void fill_floats(Random& random, Array const& array) {
  if (array.dtype != kF32) {  // any 16 bits are a number, or none
    for (int64_t i = 0; i < array.count(); ++i) {
      array.data<uint16_t>()[i] = static_cast<uint16_t>(random.bits());
    }
    return;
  }
  for (int64_t i = 0; i < array.count(); ++i) array.data<float>()[i] = random.real();
}

Array ids_of(Random& random, int64_t n) {
  auto const form = random.below(5);
  constexpr XLA_FFI_DataType kTypes[] = {kU32, XLA_FFI_DataType_S64, XLA_FFI_DataType_U64, kS32,
                                         kU32};
  Array ids(kTypes[form], form == 0 ? std::vector<int64_t>{n, 2} : std::vector<int64_t>{n});
  auto const range = random.of<int64_t>({3, 100, 2000, int64_t{1} << 40});
  for (int64_t i = 0; i < n; ++i) {
    auto const id = random.one_in(12) ? random.between(-5, 5) : random.below(range);
    if (form < 3) {
      ids.data<int64_t>()[i] = id;
    } else {
      ids.data<int32_t>()[i] = static_cast<int32_t>(id);
    }
  }
  return ids;
}

namespace {

Key key_of(Array const& ids, int64_t i) {
  auto const wide = ids.dims.size() == 2 || Array::width(ids.dtype) == 8;
  auto const narrow = ids.dtype == kS32 ? IdType::kInt32 : IdType::kUInt32;
  return load_key(ids.data<void>(), wide ? IdType::k64 : narrow, i);
}

bool has_no_row(Key key) { return is_padding(key) || is_reserved(key); }

}  // namespace

void fill_slots(Random& random, Array const& slots, int64_t num_slots) {
  auto const hostile = random.one_in(2);
  for (int64_t i = 0; i < slots.count(); ++i) {
    auto const slot = hostile && random.one_in(3) ? random.hostile() : random.below(num_slots);
    slots.data<int32_t>()[i] = static_cast<int32_t>(slot);
  }
}

namespace {

// The slots of an array that the table has; the others are negative or foreign.
struct Named {
  std::set<int64_t> slots;
  uint64_t foreign = 0;

  Named(Array const& slots_given, int64_t num_slots) {
    for (int64_t i = 0; i < slots_given.count(); ++i) {
      auto const slot = slots_given.data<int32_t>()[i];
      if (slot >= num_slots) ++foreign;
      if (slot >= 0 && slot < num_slots) slots.insert(slot);
    }
  }
};

}  // namespace

int64_t batch_size(Random& random) {
  return random.of<int64_t>({0, 1, 5, random.below(80), random.below(80), random.below(3000)});
}

void table_attributes(Call& call, std::vector<Table*> const& tables) {
  Attribute fields{"tables", true, {}, {}, false};
  Attribute initializers{"initializers", true, {}, {}, true};
  Attribute state_initial{"state_initial", true, {}, {}, true};
  for (auto const* const table : tables) {
    auto const own = table->fields();
    fields.integers.insert(fields.integers.end(), own.begin(), own.end());
    for (int i = 0; i < 2 * kInitializerParameters; ++i) initializers.floats.push_back(0.5f);
    for (int i = 0; i < kMaxStates; ++i) state_initial.floats.push_back(0.25f);
  }
  call.attributes = {initializers, state_initial, fields};
}

void scalar(Call& call, char const* name, int64_t value) {
  call.attributes.push_back({name, false, {value}, {}, false});
}

void finish(Call& call) {
  call.operand(kU32, {});
  call.result(XLA_FFI_DataType_U8, {0});
  auto const by_name = [](Attribute const& a, Attribute const& b) { return a.name < b.name; };
  std::sort(call.attributes.begin(), call.attributes.end(), by_name);
}

namespace {

struct Parts {
  bool values, states, counters;
};

void add_tables(Call& call, std::vector<Table*> const& tables, Parts parts, bool aliased) {
  auto const add = [&](Array const& array) {
    aliased ? call.aliased(array) : call.operands.push_back(array);
  };
  for (auto const* const table : tables) {
    add(table->index);
    if (parts.values) add(table->values);
    for (auto const& state : table->states) {
      if (parts.states) add(state);
    }
    if (parts.counters) add(table->counters);
  }
}

// ---- features -----------------------------------------------------------------------------------

struct Feature {
  int64_t table, pooling, bag_size, num_ids, num_bags;
  bool weighted;
  bool in_order = true;  // its offsets are those of core/offsets.h
  Array offsets, weights;
};

Feature make_feature(Random& random, int64_t num_tables) {
  Feature feature{};
  feature.table = random.below(num_tables);
  feature.pooling = random.below(3);
  feature.weighted = random.one_in(3);
  feature.bag_size = feature.pooling == 0 ? 1 : random.of<int64_t>({0, 0, 1, 3, 40});
  feature.num_ids = batch_size(random);
  if (feature.bag_size > 0) {
    feature.num_bags = feature.num_ids / feature.bag_size;
    feature.num_ids = feature.num_bags * feature.bag_size;
  } else {
    feature.num_bags = random.of<int64_t>({0, 1, random.below(30), feature.num_ids});
    feature.offsets = Array(kS32, {feature.num_bags + 1});
    feature.in_order = !random.one_in(3);
    int64_t next = 0;
    for (int64_t b = 0; b <= feature.num_bags; ++b) {
      auto const offset = feature.in_order ? next : random.hostile();
      feature.offsets.data<int32_t>()[b] = static_cast<int32_t>(offset);
      next = std::min(next + random.below(6), feature.num_ids);
    }
  }
  if (feature.weighted) {
    feature.weights = Array(kF32, {feature.num_ids});
    fill_floats(random, feature.weights);
  }
  return feature;
}

std::vector<Feature> make_features(Random& random, size_t num_tables) {
  std::vector<Feature> features;
  for (auto count = random.below(5); count > 0; --count) {
    features.push_back(make_feature(random, static_cast<int64_t>(num_tables)));
  }
  return features;
}

void describe(Feature const& feature, std::vector<int64_t>& fields) {
  auto const first = fields.size();
  fields.resize(first + kNumFeatureFields, 0);
  fields[first + kFeatureTable] = feature.table;
  fields[first + kFeaturePooling] = feature.pooling;
  fields[first + kFeatureBagSize] = feature.bag_size;
  fields[first + kFeatureHasWeights] = feature.weighted ? 1 : 0;
  fields[first + kFeatureRows + kRowsArray] = -1;
}

void add_bags(Call& call, Feature const& feature) {
  if (feature.bag_size == 0) call.operands.push_back(feature.offsets);
  if (feature.weighted) call.operands.push_back(feature.weights);
}

// The rows of one feature in an array of one axis: groups of them, some way apart.
Array place_rows(Random& random, int64_t num_rows, int64_t dim, XLA_FFI_DataType dtype,
                 int64_t* fields) {
  if (random.one_in(2)) return Array(dtype, {num_rows, dim});
  auto const group = random.between(1, 9);
  auto const stride = (group * dim + random.below(9) + 7) / 8 * 8;
  auto const offset = random.of<int64_t>({0, 3, 8});
  fields[kRowsArray] = 0;
  fields[kRowsOffset] = offset;
  fields[kRowsGroup] = group;
  fields[kRowsStride] = stride;
  auto const last = num_rows == 0 ? 0 : num_rows - 1;
  auto const end = last / group * stride + (last % group + (num_rows == 0 ? 0 : 1)) * dim;
  return Array(dtype, {offset + end});
}

XLA_FFI_DataType float_type(Random& random) {
  return random.of({kF32, kF32, XLA_FFI_DataType_BF16, XLA_FFI_DataType_F16});
}

// ---- lookups ------------------------------------------------------------------------------------

enum class Looks { kTrains, kReads, kReadsPacked };

struct Looked {
  Table* table;
  Feature feature;
  Array ids, rows, slots;
};

void check_slots(Looked const& one, Looks looks) {
  auto const& table = *one.table;
  for (int64_t i = 0; i < one.ids.dims[0]; ++i) {
    auto const key = key_of(one.ids, i);
    auto const slot = one.slots.data<int32_t>()[i];
    if (is_padding(key)) {
      expect(slot == -1, "padding has a slot");
    } else if (is_reserved(key)) {
      expect(slot == -2, "a reserved id has a slot");
    } else if (slot < 0) {
      expect(slot == -2 && table.slot_of(key) < 0, "an id in the table has no slot");
    } else {
      expect(slot < table.slots() && table.entry(slot).key == key, "a slot of another id");
    }
  }
  if (looks == Looks::kTrains) {
    expect(table.counter(kRows) == static_cast<uint64_t>(table.live()), "live rows");
    return;
  }
  if (looks == Looks::kReadsPacked) return;
  // Rows of ids in the table, as they are.
  auto const plain = one.feature.pooling == 0 && one.rows.dims.size() == 2;
  if (!plain || one.rows.dtype != table.dtype) return;
  auto const bytes = one.rows.bytes() / static_cast<size_t>(std::max<int64_t>(1, one.rows.dims[0]));
  for (int64_t i = 0; i < one.ids.dims[0]; ++i) {
    auto const slot = one.slots.data<int32_t>()[i];
    if (slot < 0) continue;
    auto const row = table.row(slot);
    expect(
        memcmp(row.data(), one.rows.data<uint8_t>() + static_cast<size_t>(i) * bytes, bytes) == 0,
        "a row that was found");
  }
}

std::vector<Table*> all_of(World& world) {
  std::vector<Table*> tables;
  for (auto& table : world) tables.push_back(&table);
  return tables;
}

bool are_sound(std::vector<Table*> const& tables) {
  return std::all_of(tables.begin(), tables.end(), [](auto* table) { return table->is_sound; });
}

// The tables with rows of any bytes, of one code; and their attribute.
std::vector<Table> packed_tables(World const& world, Random& random, Attribute& packed) {
  auto const code = random.below(static_cast<int64_t>(RowCode::kNumCodes));
  std::vector<Table> tables(world.begin(), world.end());
  for (auto& table : tables) {
    auto const bytes =
        packed_row_bytes(static_cast<RowCode>(code), static_cast<int32_t>(table.dim));
    table.values = Array(XLA_FFI_DataType_U8, {table.slots(), bytes});
    for (size_t i = 0; i < table.values.bytes(); ++i) {
      table.values.data<uint8_t>()[i] = static_cast<uint8_t>(random.bits());
    }
    packed.integers.insert(packed.integers.end(), {code, table.dim, random.below(3)});
  }
  return tables;
}

Call make_lookup(World& world, Random& random, Looks looks) {
  auto const trains = looks == Looks::kTrains;
  Call call;

  auto const tables = all_of(world);
  table_attributes(call, tables);
  auto const any = [&](auto const& is) { return std::any_of(world.begin(), world.end(), is); };
  if (trains && any([](Table const& t) { return t.policy == 3; })) {
    auto const scores = call.operand(kU32, {static_cast<int64_t>(world.size())});
    for (size_t t = 0; t < world.size(); ++t) {
      scores.data<uint32_t>()[t] = static_cast<uint32_t>(random.bits());
    }
  }
  auto const seeded = any(
      [](Table const& t) { return is_seeded(static_cast<InitializerKind>(t.eval_initializer)); });
  if (trains) call.result(kU32, {static_cast<int64_t>(world.size()), 4});
  if (looks == Looks::kReadsPacked) {
    Attribute packed{"packed", true, {}, {}, false};
    auto own = packed_tables(world, random, packed);
    call.attributes.push_back(packed);
    std::vector<Table*> pointers;
    for (auto& table : own) pointers.push_back(&table);
    add_tables(call, pointers, {true, false, seeded}, false);
  } else {
    add_tables(call, tables, {true, trains, trains || seeded}, trains);
  }
  Attribute features{"features", true, {}, {}, false};
  std::vector<Looked> looked;
  auto known = are_sound(tables);
  auto const shares = random.one_in(4);  // at most one array, of the first feature
  for (auto& feature : make_features(random, world.size())) {
    auto* const table = tables[static_cast<size_t>(feature.table)];
    auto const ids = call.operands.emplace_back(ids_of(random, feature.num_ids));
    add_bags(call, feature);
    describe(feature, features.integers);
    auto* const fields = features.integers.data() + features.integers.size() - kNumRowsFields;
    auto const type = float_type(random);
    auto const rows = shares && looked.empty()
                          ? place_rows(random, feature.num_bags, table->dim, type, fields)
                          : Array(type, {feature.num_bags, table->dim});
    call.results.push_back(rows);
    auto const slots = call.result(kS32, {feature.num_ids});
    if (trains && feature.pooling == 2) call.result(kF32, {feature.num_bags});
    known = known && feature.in_order;
    looked.push_back({table, feature, ids, rows, slots});
  }
  call.attributes.push_back(features);
  finish(call);
  if (known) {
    call.check = [looked, looks] {
      for (auto const& one : looked) check_slots(one, looks);
    };
  }
  return call;
}

// ---- gradients ----------------------------------------------------------------------------------

struct Given {
  Feature feature;
  Array slots;
};

// Features with slots, as update, reduce and sum_rows take them.
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

// Stamps of a lookup, or none. Returns of each table whether they are its own.
std::vector<bool> add_stamps(Call& call, Random& random, std::vector<Table*> const& tables) {
  std::vector<bool> current(tables.size(), true);
  auto const stamped = random.below(2);
  scalar(call, "stamped", stamped);
  if (stamped == 0) return current;
  auto const stamps = call.operand(kU32, {static_cast<int64_t>(tables.size()), 4});
  for (size_t t = 0; t < tables.size(); ++t) {
    auto* const words = stamps.data<uint64_t>() + 2 * t;
    auto const clock = tables[t]->counter(kClock);
    words[0] = tables[t]->counter(kStamp);
    words[1] = random.one_in(2) ? clock : clock / 2;
    if (random.one_in(3)) words[random.below(2)] = random.bits();
    current[t] = words[0] == tables[t]->counter(kStamp) && words[1] <= clock;
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

// ---- rows, keys ---------------------------------------------------------------------------------

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
      expect(score == (live ? table->entry(slot).score : 0), "a score that was read");
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
  auto [call, table] = about_one(world, random, {false, false, true}, true);
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
  };
  return call;
}

// Any numbers: digits and limits that no row has, and norms that are none.
Call make_rule(World& world, Random& random, bool erases) {
  auto [call, table] = about_one(world, random, {false, false, true}, erases);
  auto const words = call.operand(kU32, {kNumRuleWords});
  for (int i = 0; i < kNumRuleWords; ++i) {
    auto const number = random.one_in(2) ? random.bits() : random.below(4) * 0x55555555u;
    words.data<uint32_t>()[i] = static_cast<uint32_t>(number);
  }
  auto const fields = random.below(32);
  if ((fields & kNormBelow) != 0) fill_floats(random, call.operand(kF32, {table->slots()}));
  auto const result = erases ? call.result(kU32, {1}) : call.result(kU32, {2, kRankBins});
  scalar(call, "fields", fields);
  finish(call);
  if (!table->is_sound) return call;
  auto const live = table->live();
  call.check = [table = table, result, live, erases] {
    auto const* const counts = result.data<uint32_t>();
    if (erases) {
      expect(table->live() == live - counts[0], "rows that a rule removed");
      expect(table->counter(kRows) == static_cast<uint64_t>(table->live()), "live rows");
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
  fill_floats(random, factor);
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

Call make_route(World&, Random& random) {
  Call call;
  Attribute parts{"parts", true, {}, {}, false};
  int64_t n = 0, segment = 0;
  for (auto count = random.below(5); count > 0; --count) {
    auto const size = batch_size(random), owners = random.between(1, 9);
    auto const begin = segment + random.below(3);
    auto const hash_seed = static_cast<int64_t>(random.one_in(2) ? 0 : random.bits());
    parts.integers.insert(parts.integers.end(), {size, begin, owners, hash_seed});
    segment = begin + owners;
    n += size;
  }
  segment += random.below(3);
  auto const ids = call.operand(kU32, {n, 2});
  auto const range = random.of<int64_t>({3, 100, int64_t{1} << 40});
  for (int64_t i = 0; i < n; ++i) {
    ids.data<int64_t>()[i] = random.one_in(9) ? random.between(-5, 0) : random.below(range);
  }
  auto const unique_of = call.result(kS32, {n}), first = call.result(kS32, {n});
  auto const starts = call.result(kS32, {segment + 1});
  call.attributes = {parts};
  finish(call);
  call.check = [parts, ids, unique_of, first, starts, n, segment] {
    std::map<std::pair<size_t, uint64_t>, int32_t> number;
    size_t part = 0;
    int64_t end = parts.integers.empty() ? 0 : parts.integers[0];
    for (int64_t i = 0; i < n; ++i) {
      while (i >= end) end += parts.integers[++part * kNumPartFields];
      auto const key = ids.data<uint64_t>()[i];
      auto const own = unique_of.data<int32_t>()[i];
      if (is_padding(key)) {
        expect(own == n, "the number of padding");
        continue;
      }
      expect(own >= 0 && own < n, "a number that there is not");
      auto const [found, is_first] = number.insert({{part, key}, own});
      expect(found->second == own, "two numbers for one id");
      expect(!is_first || first.data<int32_t>()[own] == i, "where an id first occurs");
    }
    expect(starts.data<int32_t>()[segment] == static_cast<int32_t>(number.size()), "ids");
  };
  return call;
}

Call make_offsets(World&, Random& random) {
  Call call;
  auto const dtype = random.of({kS32, kU32, XLA_FFI_DataType_S64, XLA_FFI_DataType_U64});
  auto const bags = batch_size(random);
  auto const lengths = call.operand(dtype, {bags});
  auto const hostile = random.one_in(2);
  std::vector<__int128> truth;
  for (int64_t b = 0; b < bags; ++b) {
    auto const length = hostile && random.one_in(4) ? random.hostile() : random.below(6);
    if (Array::width(dtype) == 8) {
      lengths.data<int64_t>()[b] = length;
      truth.push_back(dtype == XLA_FFI_DataType_S64 ? __int128{length}
                                                    : __int128{static_cast<uint64_t>(length)});
    } else {
      lengths.data<int32_t>()[b] = static_cast<int32_t>(length);
      truth.push_back(dtype == kS32 ? __int128{static_cast<int32_t>(length)}
                                    : __int128{static_cast<uint32_t>(length)});
    }
  }
  auto const capacity = random.of<int64_t>({0, 1, bags * 2, bags * 6, INT32_MAX - 1});
  auto const offsets = call.result(kS32, {bags + 1});
  auto const malformed = call.result(kU32, {1});
  scalar(call, "capacity", capacity);
  finish(call);
  call.check = [truth, capacity, offsets, malformed] {
    __int128 sum = 0;
    uint32_t cut = 0;
    expect(offsets.data<int32_t>()[0] == 0, "the first offset");
    for (size_t b = 0; b < truth.size(); ++b) {
      auto const end = sum + std::max(truth[b], __int128{0});
      cut += truth[b] < 0 || end > capacity ? 1 : 0;
      sum = std::min(end, __int128{capacity});
      expect(offsets.data<int32_t>()[b + 1] == sum, "an offset");
    }
    expect(malformed.data<uint32_t>()[0] == cut, "bags that were cut");
  };
  return call;
}

// Factors of rows; `starts` and `of_suffix` are in order, or any numbers.
struct Factors {
  int64_t m, k, n;
  Array prefix, suffix, starts, of_suffix;
  bool in_order;
  int64_t segments = 1, inner = 1;

  // Of prefix p, in an array [p / inner, segments, inner, m / segments, k].
  int64_t prefix_at(int64_t p, int64_t row, int64_t column) const {
    auto const of_segment = m / segments;
    auto const segment = (p / inner * segments + row / of_segment) * inner + p % inner;
    return (segment * of_segment + row % of_segment) * k + column;
  }
};

Factors add_factors(Call& call, Random& random) {
  Factors f{
      random.between(1, 20), random.between(1, 40), random.between(1, 9), {}, {}, {}, {}, true};
  auto const prefixes = random.of<int64_t>({0, 1, 9, 40}),
             suffixes = random.of<int64_t>({1, 7, 30});
  f.in_order = random.one_in(2);
  if (f.m % 2 == 0) f.segments = random.of<int64_t>({1, 2, f.m});
  f.inner = prefixes % 3 == 0 ? random.of<int64_t>({1, 3}) : random.of<int64_t>({1, prefixes});
  f.prefix = call.operand(kF32, {prefixes * f.segments, f.m / f.segments * f.k});
  f.suffix = call.operand(kF32, {suffixes, f.k * f.n});
  fill_floats(random, f.prefix);
  fill_floats(random, f.suffix);
  f.starts = call.operand(kS32, {prefixes + 1});
  int64_t next = 0;
  for (int64_t p = 0; p <= prefixes; ++p) {
    f.starts.data<int32_t>()[p] = static_cast<int32_t>(f.in_order ? next : random.hostile());
    next += random.below(suffixes + 1);
  }
  auto const last = f.starts.data<int32_t>()[prefixes];
  auto const rows = f.in_order ? int64_t{last} : random.below(60);
  f.of_suffix = call.operand(kS32, {rows});
  for (int64_t p = 0; f.in_order && p < prefixes; ++p) {  // each suffix of a prefix once
    auto const begin = f.starts.data<int32_t>()[p];
    for (auto i = begin; i < f.starts.data<int32_t>()[p + 1]; ++i) {
      f.of_suffix.data<int32_t>()[i] = i - begin;
    }
  }
  for (int64_t i = 0; !f.in_order && i < rows; ++i) {
    f.of_suffix.data<int32_t>()[i] = static_cast<int32_t>(random.hostile());
  }
  scalar(call, "rank", f.k);
  scalar(call, "segments", f.segments);
  scalar(call, "inner", f.inner);
  scalar(call, "exact", random.below(2));
  return f;
}

bool is_near(double found, double truth, double scale) {
  return std::abs(found - truth) <= 1e-4 * (1 + scale);
}

Call make_pair_rows(World&, Random& random) {
  Call call;
  auto const f = add_factors(call, random);
  auto const rows = call.result(kF32, {f.of_suffix.dims[0], f.m * f.n});
  finish(call);
  if (!f.in_order) return call;
  call.check = [f, rows] {
    for (int64_t p = 0; p + 1 < f.starts.dims[0]; ++p) {
      for (int64_t i = f.starts.data<int32_t>()[p]; i < f.starts.data<int32_t>()[p + 1]; ++i) {
        auto const* const suffix =
            f.suffix.data<float>() + f.of_suffix.data<int32_t>()[i] * f.k * f.n;
        for (int64_t at = 0; at < f.m * f.n; ++at) {
          double sum = 0, scale = 0;
          for (int64_t k = 0; k < f.k; ++k) {
            auto const term = double{f.prefix.data<float>()[f.prefix_at(p, at / f.n, k)]} *
                              double{suffix[k * f.n + at % f.n]};
            sum += term;
            scale += std::abs(term);
          }
          expect(is_near(rows.data<float>()[i * f.m * f.n + at], sum, scale), "a product");
        }
      }
    }
  };
  return call;
}

Call make_pair_gradients(World&, Random& random) {
  Call call;
  auto const f = add_factors(call, random);
  auto const d_rows = call.operand(kF32, {f.of_suffix.dims[0], f.m * f.n});
  fill_floats(random, d_rows);
  auto const d_prefix = call.result(kF32, f.prefix.dims),
             d_suffix = call.result(kF32, f.suffix.dims);
  finish(call);
  if (!f.in_order) return call;
  call.check = [f, d_rows, d_prefix, d_suffix] {
    // <gradient, factor> is <gradient of rows, rows>, of each factor.
    double rows = 0, of_prefix = 0, of_suffix = 0, scale = 0;
    for (int64_t i = 0; i < f.prefix.count(); ++i) {
      of_prefix += double{d_prefix.data<float>()[i]} * double{f.prefix.data<float>()[i]};
    }
    for (int64_t i = 0; i < f.suffix.count(); ++i) {
      of_suffix += double{d_suffix.data<float>()[i]} * double{f.suffix.data<float>()[i]};
    }
    for (int64_t p = 0; p + 1 < f.starts.dims[0]; ++p) {
      for (int64_t i = f.starts.data<int32_t>()[p]; i < f.starts.data<int32_t>()[p + 1]; ++i) {
        auto const* const suffix =
            f.suffix.data<float>() + f.of_suffix.data<int32_t>()[i] * f.k * f.n;
        for (int64_t at = 0; at < f.m * f.n; ++at) {
          for (int64_t k = 0; k < f.k; ++k) {
            auto const term = double{f.prefix.data<float>()[f.prefix_at(p, at / f.n, k)]} *
                              double{suffix[k * f.n + at % f.n]} *
                              double{d_rows.data<float>()[i * f.m * f.n + at]};
            rows += term;
            scale += std::abs(term);
          }
        }
      }
    }
    expect(is_near(of_prefix, rows, scale), "gradients of prefixes");
    expect(is_near(of_suffix, rows, scale), "gradients of suffixes");
  };
  return call;
}

}  // namespace

std::vector<std::string> all_targets() {
  std::vector<std::string> names;
  for (auto const& each : registrations()) names.push_back(std::string(each.name).substr(7));
  return names;
}

Call make_call(std::string const& op, World& world, Random& random) {
  static std::map<std::string, Call (*)(World&, Random&)> const makers = {
      {"lookup", [](World& w, Random& r) { return make_lookup(w, r, Looks::kTrains); }},
      {"find", [](World& w, Random& r) { return make_lookup(w, r, Looks::kReads); }},
      {"find_packed", [](World& w, Random& r) { return make_lookup(w, r, Looks::kReadsPacked); }},
      {"update", make_update},
      {"update_any", make_update_any},
      {"reduce", make_reduce},
      {"sum_rows", make_sum_rows},
      {"gather", make_gather},
      {"scatter", make_scatter},
      {"erase", make_erase},
      {"count_rule", [](World& w, Random& r) { return make_rule(w, r, false); }},
      {"erase_rule", [](World& w, Random& r) { return make_rule(w, r, true); }},
      {"decay", make_decay},
      {"export_batch", make_export},
      {"route", make_route},
      {"offsets", make_offsets},
      {"pair_rows", make_pair_rows},
      {"pair_gradients", make_pair_gradients},
      {"promote", make_promote},
      {"fetch", make_fetch},
      {"write_back", make_write_back},
      {"swap_rows", make_swap_rows},
      {"settle", make_settle},
      {"tier_rows", make_tier_rows},
      {"tier_gather", make_tier_gather},
  };
  auto call = makers.at(op)(world, random);
  call.op = op;
  call.num_threads = random.one_in(3) ? 3 : 1;
  return call;
}

}  // namespace dynemb::fuzz
