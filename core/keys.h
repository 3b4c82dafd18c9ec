// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/keys.h: what a 64-bit id may be, and how it reads from the arrays that a user passes.
#pragma once

#include <cstdint>

#include "core/macros.h"

namespace dynemb {

using Key = uint64_t;

// All ones, -1 as a signed id: an empty slot in the index, padding in a batch.
constexpr Key kEmptyKey = ~uint64_t{0};
// -2, -3 and -4 belong to file formats of other systems; a table refuses them.
constexpr Key kFirstReservedKey = ~uint64_t{0} - 3;

DYNEMB_HD bool is_padding(Key key) { return key == kEmptyKey; }
DYNEMB_HD bool is_reserved(Key key) { return key >= kFirstReservedKey && key != kEmptyKey; }

// This says how ids lie in memory. A pair of uint32 words (low, high) has the bytes of a 64-bit
// integer.
enum class IdType : int32_t { k64 = 0, kInt32 = 1, kUInt32 = 2 };

DYNEMB_HD Key load_key(void const* ids, IdType type, int64_t position) {
  if (type == IdType::k64) return static_cast<uint64_t const*>(ids)[position];
  auto const value = static_cast<int32_t const*>(ids)[position];
  // 32-bit ids are sign-extended, so that -1 is padding at either width.
  if (type == IdType::kInt32) return static_cast<Key>(static_cast<int64_t>(value));
  auto const word = static_cast<uint32_t>(value);
  return word == ~uint32_t{0} ? kEmptyKey : Key{word};
}

}  // namespace dynemb
