// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/find.h: the slot of a key.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/macros.h"
#include "core/slot.h"
#include "core/table_ref.h"

namespace dynemb {

// One bit, 0x80, for each byte of `word` that equals the byte repeated in `pattern`. May also set
// bits above a true one (a borrow), so a candidate is a hint: the key decides.
DYNEMB_HD uint64_t equal_bytes(uint64_t word, uint64_t pattern) {
  auto const difference = word ^ pattern;
  return (difference - 0x0101010101010101ull) & ~difference & 0x8080808080808080ull;
}

DYNEMB_HD int lowest_byte(uint64_t mask) {
#ifdef __CUDA_ARCH__
  return (__ffsll(static_cast<long long>(mask)) - 1) >> 3;
#else
  return __builtin_ctzll(mask) >> 3;
#endif
}

// Looks at all 128 digests, eight at a time, and at the keys of those that match. No key moves
// while a probe runs, so no lock is needed; an erased slot leaves a hole, so holes do not end it.
DYNEMB_HD int find_in_bucket(Bucket const& bucket, Key key, uint64_t hash) {
  auto const pattern = uint64_t{digest_of(hash)} * 0x0101010101010101ull;
  auto const* const words = reinterpret_cast<uint64_t const*>(bucket.digests);
  for (int word = 0; word < kBucketCapacity / 8; ++word) {
    for (auto mask = equal_bytes(words[word], pattern); mask != 0; mask &= mask - 1) {
      auto const place = word * 8 + lowest_byte(mask);
      if (bucket.keys[place] == key) return place;
    }
  }
  return -1;
}

// The slot of `key`, or kMissingSlot.
DYNEMB_HD int32_t find(TableRef const& table, Key key) {
  auto const hash = hash_key(key);
  auto const bucket = local_bucket_of(table, hash);
  auto const place = find_in_bucket(bucket_at(table, bucket), key, hash);
  return place < 0 ? kMissingSlot : static_cast<int32_t>(bucket * kBucketCapacity + place);
}

// For serving: the slot of `key`, kPaddingSlot, or kRefusedSlot for a key that is not there.
DYNEMB_HD int32_t find_to_read(TableRef const& table, Key key) {
  if (is_padding(key)) return kPaddingSlot;
  auto const slot = is_reserved(key) ? kMissingSlot : find(table, key);
  return slot >= 0 ? slot : kRefusedSlot;
}

}  // namespace dynemb
