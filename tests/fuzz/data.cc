// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/fuzz/data.h"

#include <algorithm>

namespace dynemb::fuzz {

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

Key key_of(Array const& ids, int64_t i) {
  auto const wide = ids.dims.size() == 2 || Array::width(ids.dtype) == 8;
  auto const narrow = ids.dtype == kS32 ? IdType::kInt32 : IdType::kUInt32;
  return load_key(ids.data<void>(), wide ? IdType::k64 : narrow, i);
}

bool has_no_row(Key key) { return is_padding(key) || is_reserved(key); }

void fill_slots(Random& random, Array const& slots, int64_t num_slots) {
  auto const hostile = random.one_in(2);
  for (int64_t i = 0; i < slots.count(); ++i) {
    auto const slot = hostile && random.one_in(3) ? random.hostile() : random.below(num_slots);
    slots.data<int32_t>()[i] = static_cast<int32_t>(slot);
  }
}

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
    if (parts.sketch && table->sketch_words > 0) add(table->sketch);
    if (parts.rings && table->ring_size > 0) add(table->rings);
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

}  // namespace dynemb::fuzz
