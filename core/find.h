// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/find.h: the slot of a key.
#pragma once

#include <cstdint>

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

// The quarter of a bucket, 0 to 3, that the key of a hash looks at first and takes a slot in while
// it has one, then the other quarter of that half: a quarter's digests are one sector of a GPU's
// memory, a half's one line of a CPU's cache. A key may lie anywhere. The bits take part neither in
// the digest nor in the choice of the bucket.
constexpr int kHalfBucket = kBucketCapacity / 2;
constexpr int kQuarterBucket = kBucketCapacity / 4;

DYNEMB_HD int preferred_quarter(uint64_t hash) { return static_cast<int>(hash >> 8 & 3); }
DYNEMB_HD int preferred_half(uint64_t hash) { return preferred_quarter(hash) / 2; }

// The first place from `from` on that may have the digest of the hash; kBucketCapacity if none is.
DYNEMB_HD int next_candidate(Bucket const& bucket, uint64_t hash, int from) {
  auto const pattern = uint64_t{digest_of(hash)} * 0x0101010101010101ull;
  auto const* const words = reinterpret_cast<uint64_t const*>(bucket.digests);
  auto wanted = ~uint64_t{0} << (from % 8 * 8);
  for (int word = from / 8; word < kBucketCapacity / 8; ++word, wanted = ~uint64_t{0}) {
    auto const equal = equal_bytes(words[word], pattern) & wanted;
    if (equal != 0) return word * 8 + lowest_byte(equal);
  }
  return kBucketCapacity;
}

// Returns the place of a key, or -1, from a candidate on. No key moves while a probe runs, so no
// lock is needed; an erased slot leaves a hole, so a hole does not end the search.
DYNEMB_HD int find_from(Bucket const& bucket, Key key, uint64_t hash, int candidate) {
  while (candidate < kBucketCapacity) {
    if (bucket.entries[candidate].key == key) return candidate;
    candidate = next_candidate(bucket, hash, candidate + 1);
  }
  return -1;
}

DYNEMB_HD int find_in_bucket(Bucket const& bucket, Key key, uint64_t hash) {
  return find_from(bucket, key, hash, next_candidate(bucket, hash, 0));
}

// Returns the slot of `key`, or kMissingSlot.
DYNEMB_HD int32_t find(TableRef const& table, Key key) {
  auto const hash = hash_key(key, table.hash);
  auto const bucket = local_bucket_of(table, hash);
  auto const place = find_in_bucket(bucket_at(table, bucket), key, hash);
  return place < 0 ? kMissingSlot : static_cast<int32_t>(bucket * kBucketCapacity + place);
}

// For serving: an id without a row is a refused one.
DYNEMB_HD int32_t slot_to_read(int32_t slot) { return slot == kMissingSlot ? kRefusedSlot : slot; }

}  // namespace dynemb
