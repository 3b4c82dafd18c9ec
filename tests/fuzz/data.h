// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/fuzz/data.h: what calls are made of: ids, slots, numbers, the arrays of tables.
#pragma once

#include <set>
#include <vector>

#include "core/keys.h"
#include "tests/fuzz/calls.h"

namespace dynemb::fuzz {

constexpr auto kS32 = XLA_FFI_DataType_S32;
constexpr auto kU32 = XLA_FFI_DataType_U32;
constexpr auto kF32 = XLA_FFI_DataType_F32;

int64_t batch_size(Random& random);
void fill_floats(Random& random, Array const& array);
Array ids_of(Random& random, int64_t n);
Key key_of(Array const& ids, int64_t i);
bool has_no_row(Key key);
void fill_slots(Random& random, Array const& slots, int64_t num_slots);

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

// ---- attributes and tables of a call ------------------------------------------------------------

void table_attributes(Call& call, std::vector<Table*> const& tables);
void scalar(Call& call, char const* name, int64_t value);
void finish(Call& call);

struct Parts {
  bool values, states, counters;
  bool sketch = false;
  bool rings = false;
};

void add_tables(Call& call, std::vector<Table*> const& tables, Parts parts, bool aliased);
std::vector<Table*> all_of(World& world);
bool are_sound(std::vector<Table*> const& tables);

}  // namespace dynemb::fuzz
