// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/hash.h: key -> hash -> bucket, digest, mark. Part of the checkpoint format: never change
// what these functions return.
#pragma once

#include <cstdint>

#include "core/keys.h"
#include "core/macros.h"

namespace dynemb {

// The finaliser of MurmurHash3 (Austin Appleby, public domain). It is a bijection of 64-bit
// integers: two keys never share a hash, which core/claim.h relies on.
DYNEMB_HD uint64_t hash_key(Key key) {
  key ^= key >> 33;
  key *= 0xff51afd7ed558ccdull;
  key ^= key >> 33;
  key *= 0xc4ceb9fe1a85ec53ull;
  key ^= key >> 33;
  return key;
}

// The high 64 bits of a 128-bit product; in 32-bit steps where a compiler has no wider type.
DYNEMB_HD uint64_t multiply_high(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#elif defined(__SIZEOF_INT128__)
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(static_cast<Wide>(a) * b >> 64);
#else
  auto const a_low = a & 0xffffffffu, a_high = a >> 32;
  auto const b_low = b & 0xffffffffu, b_high = b >> 32;
  auto const middle = a_high * b_low + (a_low * b_low >> 32);
  auto const other = a_low * b_high + (middle & 0xffffffffu);
  return a_high * b_high + (middle >> 32) + (other >> 32);
#endif
}

// The high bits of the hash choose the bucket, so a range of buckets is a range of hashes.
DYNEMB_HD uint64_t bucket_of(uint64_t hash, uint64_t num_buckets) {
  return multiply_high(hash, num_buckets);
}

// One byte that a probe compares before it reads a key. 0 means an empty slot.
DYNEMB_HD uint8_t digest_of(uint64_t hash) {
  auto const digest = static_cast<uint8_t>(hash);
  return digest == 0 ? uint8_t{1} : digest;
}

}  // namespace dynemb
