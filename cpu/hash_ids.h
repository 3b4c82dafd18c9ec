// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/hash_ids.h: loops that make ids of arrays (core/string_hash.h), on all cores if they are
// large. Each id depends on its value and the key alone, so threads change nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/string_hash.h"

namespace dynemb::cpu {

struct Bytes {
  unsigned char const* data;
  size_t size;
};

void hash_int64s(SipKey const& key, int64_t const* values, int64_t count, int64_t* ids);
void hash_uint64s(SipKey const& key, uint64_t const* values, int64_t count, int64_t* ids);

// Value i is data[offsets[i], offsets[i + 1]). Returns false, having read nothing, if an offset is
// outside [0, size] or the offsets descend.
template <class Offset>
bool hash_between_offsets(SipKey const& key, Bytes data, Offset const* offsets, int64_t count,
                          int64_t* ids);

// `count` values of `width` bytes each; zeros at a value's end do not count if `strips_zeros`.
void hash_fixed_bytes(SipKey const& key, unsigned char const* data, int64_t width,
                      bool strips_zeros, int64_t count, int64_t* ids);

// `count` values of `width` code points each, hashed as UTF-8 without zeros at the end. Returns the
// first value that holds a number that is no character, or -1.
int64_t hash_fixed_text(SipKey const& key, uint32_t const* data, int64_t width, int64_t count,
                        int64_t* ids);

// Those of the values whose data is not null; the ids of the others stay.
void hash_spans(SipKey const& key, Bytes const* values, int64_t count, int64_t* ids);

}  // namespace dynemb::cpu
