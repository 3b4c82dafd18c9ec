// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/prefetch.h: asks for all cache lines of a row.
#pragma once

#include <cstdint>

#include "core/row.h"

namespace dynemb::cpu {

constexpr int64_t kLineBytes = 64;

inline void prefetch_bytes(void const* address, int64_t bytes) {
  auto const* const first = static_cast<char const*>(address);
  for (int64_t offset = 0; offset < bytes; offset += kLineBytes) {
    __builtin_prefetch(first + offset);
  }
}

inline int64_t bytes_of(ValueType type) { return type == ValueType::kFloat32 ? 4 : 2; }

inline void prefetch_row(TableRef const& table, int64_t slot) {
  auto const bytes = bytes_of(table.value_type) * table.dim;
  prefetch_bytes(static_cast<char const*>(table.values) + slot * bytes, bytes);
}

inline void prefetch_states(TableRef const& table, int64_t slot) {
  for (int s = 0; s < table.num_states; ++s) {
    prefetch_bytes(state_at(table, s, slot), int64_t{4} * table.state_width[s]);
  }
}

}  // namespace dynemb::cpu
