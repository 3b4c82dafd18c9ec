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

// The high bits of the hash choose the bucket, so a range of buckets is a range of hashes:
// hash * num_buckets / 2^64. num_buckets is below 2^32, so two products of 64 bits do, and a
// compiler vectorises them.
DYNEMB_HD uint64_t bucket_of(uint64_t hash, uint64_t num_buckets) {
  auto const low = (hash & 0xffffffffu) * num_buckets;
  auto const high = (hash >> 32) * num_buckets;
  return (high + (low >> 32)) >> 32;
}

// One byte that a probe compares before it reads a key. 0 means an empty slot.
DYNEMB_HD uint8_t digest_of(uint64_t hash) {
  auto const digest = static_cast<uint8_t>(hash);
  return digest == 0 ? uint8_t{1} : digest;
}

}  // namespace dynemb
