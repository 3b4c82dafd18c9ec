// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// core/route.h: the distinct ids of a batch and their owners: in what order they are numbered, and
// which segment of the numbers belongs to which owner of which table.
//
// Ids of a table are numbered in order of their hash. So the ids of one owner, a range of hashes,
// follow each other, and so do those of one of its buckets.
#pragma once

#include <cstdint>

#include "core/args.h"
#include "core/hash.h"
#include "core/keys.h"

namespace dynemb {

// Where all owners have equally many buckets, their ranges of hashes are those of larger buckets,
// one for each owner: this saves a division.
inline Owners owners_of(uint32_t buckets, uint32_t of_each) {
  if (buckets % of_each != 0) return {buckets, of_each};
  return {buckets / of_each, 1};
}

DYNEMB_HD int32_t owner_of_bucket(uint64_t bucket, Owners owners) {
  auto const number = static_cast<uint32_t>(bucket);
  return static_cast<int32_t>(owners.of_each == 1 ? number : number / owners.of_each);
}

DYNEMB_HD int32_t owner_of(uint64_t hash, Owners owners) {
  return owner_of_bucket(bucket_of(hash, owners.buckets), owners);
}

// A GPU sorts by the upper half of the hash, and by more than that for padding, which is last of
// its table. The two largest halves share a key, so that no id has the key of padding. Ids with the
// same key differ in the low kTieBits bits of their hash.
constexpr uint32_t kPaddingSortKey = ~uint32_t{0};
constexpr int kTieBits = 33;

DYNEMB_HD uint32_t sort_key(Key id, HashFactors hash) {
  if (is_padding(id)) return kPaddingSortKey;
  auto const upper = static_cast<uint32_t>(hash_key(id, hash) >> 32);
  return upper == kPaddingSortKey ? kPaddingSortKey - 1 : upper;
}

// The owner of all ids with this key; -1 if it depends on the lower half of the hash. That adds
// less than the number of buckets, before a division by 2^32.
DYNEMB_HD int32_t owner_of_sort_key(uint32_t key, Owners owners) {
  uint64_t const count = owners.buckets;
  auto const last = key == kPaddingSortKey - 1 ? kPaddingSortKey : key;
  auto const least = owner_of_bucket(key * count >> 32, owners);
  auto const most = owner_of_bucket((last * count + count - 1) >> 32, owners);
  return least == most ? least : -1;
}

// The entries of `starts` that depend on the ids of one part: its owners' segments, and those up to
// the next part that has ids, which are empty.
struct StartsRange {
  int32_t begin;
  int32_t end;
};

inline StartsRange starts_of_part(RouteArgs const& args, int32_t part) {
  auto before = part - 1, after = part + 1;
  while (before >= 0 && args.parts[before].size == 0) --before;
  while (after < args.num_parts && args.parts[after].size == 0) ++after;
  return {before < 0 ? 0 : args.parts[part].first_segment,
          after == args.num_parts ? args.num_segments + 1 : args.parts[after].first_segment};
}

}  // namespace dynemb
