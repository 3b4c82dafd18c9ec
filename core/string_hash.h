// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/string_hash.h: strings, bytes and integers -> ids. Part of every trained table with ids made
// from strings: never change what these functions return (docs/api/ids.md).
//
// SipHash-2-4 (Jean-Philippe Aumasson, Daniel J. Bernstein; public domain) with a key of 128 bits.
// Without the key it is not feasible to find values with equal ids, or with ids of one bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/macros.h"

namespace dynemb {

struct SipKey {
  uint64_t low;
  uint64_t high;
};

// The keys of one salt: integers are hashed under another key than text, so 5 is not "5".
struct HashKeys {
  SipKey text;
  SipKey integer;
};

struct SipState {
  uint64_t v0, v1, v2, v3;
};

DYNEMB_HD uint64_t rotate_left(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

DYNEMB_HD void sip_round(SipState& s) {
  s.v0 += s.v1;
  s.v2 += s.v3;
  s.v1 = rotate_left(s.v1, 13) ^ s.v0;
  s.v3 = rotate_left(s.v3, 16) ^ s.v2;
  s.v0 = rotate_left(s.v0, 32);
  s.v2 += s.v1;
  s.v0 += s.v3;
  s.v1 = rotate_left(s.v1, 17) ^ s.v2;
  s.v3 = rotate_left(s.v3, 21) ^ s.v0;
  s.v2 = rotate_left(s.v2, 32);
}

DYNEMB_HD SipState sip_begin(SipKey const& key) {
  return {key.low ^ 0x736f6d6570736575ull, key.high ^ 0x646f72616e646f6dull,
          key.low ^ 0x6c7967656e657261ull, key.high ^ 0x7465646279746573ull};
}

DYNEMB_HD void sip_word(SipState& s, uint64_t word) {
  s.v3 ^= word;
  sip_round(s);
  sip_round(s);
  s.v0 ^= word;
}

// `last` holds the bytes behind the last whole word, and the length modulo 256 in its highest byte.
DYNEMB_HD uint64_t sip_end(SipState& s, uint64_t last) {
  sip_word(s, last);
  s.v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) sip_round(s);
  return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

// The hash as an id: -1 is padding and -2 to -4 are reserved, so these lose their sign.
DYNEMB_HD int64_t id_of_hash(uint64_t hash) {
  return static_cast<int64_t>(hash >= 0xfffffffffffffffcull ? hash & 0x7fffffffffffffffull : hash);
}

// Hashes a value of 64 bits as one word in two's complement.
DYNEMB_HD int64_t hash_int64(SipKey const& key, int64_t value) {
  auto state = sip_begin(key);
  sip_word(state, static_cast<uint64_t>(value));
  return id_of_hash(sip_end(state, uint64_t{8} << 56));
}

// The same value as an int64 has the same hash; one of 2^63 and above takes a second word, as a
// Python integer does that needs 65 bits for its sign.
DYNEMB_HD int64_t hash_uint64(SipKey const& key, uint64_t value) {
  auto const is_large = value >> 63 != 0;
  auto state = sip_begin(key);
  sip_word(state, value);
  auto second = state;
  sip_word(second, 0);
  // A choice of values, not a branch: a loop over many is vectorised.
  state.v0 = is_large ? second.v0 : state.v0;
  state.v1 = is_large ? second.v1 : state.v1;
  state.v2 = is_large ? second.v2 : state.v2;
  state.v3 = is_large ? second.v3 : state.v3;
  return id_of_hash(sip_end(state, (is_large ? uint64_t{16} : uint64_t{8}) << 56));
}

inline uint64_t little_endian_word(unsigned char const* data, size_t bytes) {
  uint64_t word = 0;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  std::memcpy(&word, data, bytes);
#else
  for (size_t i = 0; i < bytes; ++i) word |= uint64_t{data[i]} << 8 * i;
#endif
  return word;
}

// Hashes bytes, or text as UTF-8. `data` may be null if `size` is 0.
inline int64_t hash_bytes(SipKey const& key, unsigned char const* data, size_t size) {
  auto state = sip_begin(key);
  auto const whole = size / 8 * 8;
  for (size_t at = 0; at < whole; at += 8) sip_word(state, little_endian_word(data + at, 8));
  uint64_t last = static_cast<uint64_t>(size) << 56;
  for (size_t i = whole; i < size; ++i) last |= uint64_t{data[i]} << 8 * (i - whole);
  return id_of_hash(sip_end(state, last));
}

}  // namespace dynemb
