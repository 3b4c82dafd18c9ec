// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/hash.h: key -> hash -> bucket, digest, mark. Part of the checkpoint format: never change
// what these functions return.
//
// A table may have a secret seed, so that ids cannot be chosen to fall into one bucket. The seed
// replaces the two multipliers of the hash, at no cost. Why not xor it with the key: the steps
// between the products are linear, so that pairs of ids with chosen differences would share a
// bucket far more often than by chance, whatever the seed. A product with a secret odd factor
// leaves no such difference: whatever two ids are, they share one of n buckets for about 4 / n of
// all second factors at most (docs/decisions/buckets.md).
#pragma once

#include <cstdint>

#include "core/keys.h"
#include "core/macros.h"

namespace dynemb {

// The multipliers of a table's hash. Odd, so that a product can be undone.
struct HashFactors {
  uint64_t first;
  uint64_t second;
};

// Those of MurmurHash3's finaliser (Austin Appleby, public domain), for tables without a seed.
DYNEMB_HD HashFactors plain_factors() { return {0xff51afd7ed558ccdull, 0xc4ceb9fe1a85ec53ull}; }

// A bijection of 64-bit integers: two keys of a table never share a hash, which core/claim.h relies
// on.
DYNEMB_HD uint64_t hash_key(Key key, HashFactors factors) {
  key ^= key >> 33;
  key *= factors.first;
  key ^= key >> 33;
  key *= factors.second;
  key ^= key >> 33;
  return key;
}

// For what is not a key of a table.
DYNEMB_HD uint64_t hash_number(uint64_t number) { return hash_key(number, plain_factors()); }

// Each factor alone is any odd number for two of all seeds. Seed 0 changes nothing.
DYNEMB_HD HashFactors factors_of_seed(uint64_t seed) {
  auto const plain = plain_factors();
  return {plain.first ^ hash_number(seed) << 1,
          plain.second ^ hash_number(seed * 0x9e3779b97f4a7c15ull) << 1};
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
