// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/fuzz/parts.h: what random calls are made of.
#pragma once

#include <vector>

#include "tests/fuzz/world.h"

namespace dynemb::fuzz {

constexpr auto kS32 = XLA_FFI_DataType_S32;
constexpr auto kU32 = XLA_FFI_DataType_U32;
constexpr auto kF32 = XLA_FFI_DataType_F32;

void fill_floats(Random& random, Array const& array);
Array ids_of(Random& random, int64_t n);
// In half of the arrays a third of the slots are hostile.
void fill_slots(Random& random, Array const& slots, int64_t num_slots);
int64_t batch_size(Random& random);
void table_attributes(Call& call, std::vector<Table*> const& tables);
void scalar(Call& call, char const* name, int64_t value);
// Adds the last operand and the scratch, and sorts the attributes.
void finish(Call& call);

}  // namespace dynemb::fuzz
