// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/tensor_train/floats8.h: eight numbers that the compiler keeps in registers of any set.
#pragma once

#include <cstdint>

namespace dynemb::cpu {

// At any address of a float. No function takes or returns one: how it would be passed depends on
// the instruction set.
using Floats8 = float __attribute__((vector_size(32), aligned(4), may_alias));
constexpr int32_t kLanes = 8;
constexpr int32_t kBlock = 2 * kLanes;  // columns of a step of the loops over factors

inline int32_t whole_blocks(int32_t columns) { return (columns + kBlock - 1) / kBlock * kBlock; }

inline Floats8* lanes_at(float* numbers) { return reinterpret_cast<Floats8*>(numbers); }
inline Floats8 const* lanes_at(float const* numbers) {
  return reinterpret_cast<Floats8 const*>(numbers);
}

}  // namespace dynemb::cpu
