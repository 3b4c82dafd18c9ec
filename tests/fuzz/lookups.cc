// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "tests/fuzz/features.h"

namespace dynemb::fuzz {
namespace {

struct Looked {
  Table* table;
  Feature feature;
  Array ids, rows, slots, uses;
};

// Where the positions of bags end: what follows is padding, whatever ids stand there.
int64_t end_of_bags(Looked const& one) {
  auto const count = one.ids.dims[0];
  auto const& feature = one.feature;
  if (feature.bag_size != 0) return count;
  return std::clamp<int64_t>(feature.offsets.data<int32_t>()[feature.num_bags], 0, count);
}

// Returns hits and misses of each table.
std::vector<uint64_t> counted_ids(std::vector<Table*> const& tables) {
  std::vector<uint64_t> result;
  for (auto const* const table : tables) {
    result.push_back(table->counter(kHits) + table->counter(kMisses));
  }
  return result;
}

void check_counts(std::vector<Table*> const& tables, std::vector<Looked> const& looked,
                  std::vector<uint64_t> before) {
  for (auto const& one : looked) {
    auto const t = std::find(tables.begin(), tables.end(), one.table) - tables.begin();
    auto const uses = one.uses.dims.empty() ? nullptr : one.uses.data<uint32_t>();
    for (int64_t i = 0; i < end_of_bags(one); ++i) {
      if (!has_no_row(key_of(one.ids, i))) before[static_cast<size_t>(t)] += uses_at(uses, i);
    }
  }
  expect(counted_ids(tables) == before, "hits and misses");
  for (auto const* const table : tables) {
    if (counts_keys(table->rule)) table->check_counted_keys();
    table->check_log();
  }
}

// Why an id has no row after a training lookup.
bool is_reason(Table const& table, int32_t slot) {
  if (table.rule == AdmissionRule::kNone) return slot == kNotAdmittedSlot;
  auto const kept_out = slot == kNotAdmittedSlot && table.rule != AdmissionRule::kAll;
  return slot == kRefusedSlot || kept_out;
}

void check_slots(Looked const& one, Looks looks) {
  auto const& table = *one.table;
  for (int64_t i = 0; i < one.ids.dims[0]; ++i) {
    auto const key = key_of(one.ids, i);
    auto const slot = one.slots.data<int32_t>()[i];
    if (i >= end_of_bags(one) || is_padding(key)) {
      expect(slot == -1, "padding has a slot");
    } else if (is_reserved(key)) {
      expect(slot == -2, "a reserved id has a slot");
    } else if (slot < 0) {
      auto const trains = looks == Looks::kTrains;
      expect(trains ? is_reason(table, slot) : slot == kRefusedSlot, "why an id has no slot");
      expect(table.slot_of(key) < 0, "an id in the table has no slot");
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

// Most ids stand for a few.
void fill_uses(Random& random, Array const& uses) {
  auto const hostile = random.one_in(2);
  for (int64_t i = 0; i < uses.count(); ++i) {
    auto const number = hostile && random.one_in(3) ? random.hostile() : random.below(5);
    uses.data<uint32_t>()[i] = static_cast<uint32_t>(number);
  }
}

// Makes the tables with rows of any bytes, of one code, and their attribute.
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

// The ids and the slots of some features, in arrays that these share.
struct SharedArrays {
  std::vector<bool> has;  // of each feature
  Array ids, slots;
  int64_t begin = 0;  // of the next feature's numbers

  SharedArrays(Random& random, std::vector<Feature> const& features) : has(features.size(), false) {
    int64_t count = 0;
    for (size_t f = 0; f < features.size() && random.one_in(2); ++f) {
      has[f] = features[f].num_ids > 0 && !random.one_in(4);
      count += has[f] ? features[f].num_ids : 0;
    }
    if (count == 0) return;
    do {
      ids = ids_of(random, count);
    } while (ids.dims.size() != 2);  // as pairs of words
    slots = Array(kS32, {count});
  }
};

}  // namespace

Call make_lookup(World& world, Random& random, Looks looks) {
  auto const trains = looks == Looks::kTrains;
  Call call;

  auto const tables = all_of(world);
  table_attributes(call, tables);
  auto const any = [&](auto const& is) { return std::any_of(world.begin(), world.end(), is); };
  if (trains && any([](Table const& t) { return t.takes_given(); })) {
    auto const given = call.operand(kU32, {static_cast<int64_t>(world.size()), 2});
    for (size_t t = 0; t < world.size(); ++t) {
      given.data<uint64_t>()[t] = random.bits() >> random.between(0, 63);
    }
  }
  auto const seeded = any(
      [](Table const& t) { return is_seeded(static_cast<InitializerKind>(t.eval_initializer)); });
  if (trains) call.result(kU32, {static_cast<int64_t>(world.size()), int64_t{sizeof(Stamp) / 4}});
  if (looks == Looks::kReadsPacked) {
    Attribute packed{"packed", true, {}, {}, false};
    auto own = packed_tables(world, random, packed);
    call.attributes.push_back(packed);
    std::vector<Table*> pointers;
    for (auto& table : own) pointers.push_back(&table);
    add_tables(call, pointers, {true, false, seeded}, false);
  } else {
    add_tables(call, tables, {true, trains, trains || seeded, trains, trains}, trains);
  }
  Attribute features{"features", true, {}, {}, false};
  std::vector<Looked> looked;
  auto known = are_sound(tables);
  auto const shares = random.one_in(4);  // at most one array, of the first feature
  auto const all = make_features(random, world.size());
  SharedArrays shared(random, all);
  for (auto const& feature : all) {
    auto* const table = tables[static_cast<size_t>(feature.table)];
    auto const in_shared = shared.has[looked.size()];
    auto const is_first = in_shared && shared.begin == 0;
    auto const ids = in_shared ? shared.ids.part(shared.begin, feature.num_ids)
                               : ids_of(random, feature.num_ids);
    if (!in_shared || is_first) call.operands.push_back(is_first ? shared.ids : ids);
    add_bags(call, feature);
    describe(feature, features.integers);
    auto* const fields = features.integers.data() + features.integers.size() - kNumRowsFields;
    Array uses;
    if (trains && random.one_in(3)) {
      auto const scored = static_cast<ScorePolicy>(table->policy) == ScorePolicy::kCustomized;
      uses = call.operand(kU32, scored ? std::vector<int64_t>{3, feature.num_ids}
                                       : std::vector<int64_t>{feature.num_ids});
      fill_uses(random, uses);
      fields[kFeatureHasUses - kFeatureRows] = 1;
    }
    if (in_shared) fields[kFeatureHasUses - kFeatureRows] += 2 * feature.num_ids;
    auto const type = float_type(random);
    auto const rows = shares && looked.empty()
                          ? place_rows(random, feature.num_bags, table->dim, type, fields)
                          : Array(type, {feature.num_bags, table->dim});
    call.results.push_back(rows);
    auto const slots = in_shared ? shared.slots.part(shared.begin, feature.num_ids)
                                 : Array(kS32, {feature.num_ids});
    if (!in_shared || is_first) call.results.push_back(is_first ? shared.slots : slots);
    if (in_shared) shared.begin += feature.num_ids;
    if (trains && feature.pooling == 2) call.result(kF32, {feature.num_bags});
    known = known && feature.in_order;
    looked.push_back({table, feature, ids, rows, slots, uses});
  }
  call.attributes.push_back(features);
  finish(call);
  if (known) {
    call.check = [looked, looks, tables, before = counted_ids(tables)] {
      for (auto const& one : looked) check_slots(one, looks);
      if (looks == Looks::kTrains) check_counts(tables, looked, before);
    };
  }
  return call;
}

}  // namespace dynemb::fuzz
