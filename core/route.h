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

// The shard that owns a key: the bucket of a table with as many buckets as there are owners.
DYNEMB_HD int32_t owner_of(uint64_t hash, int32_t owners) {
  return static_cast<int32_t>(bucket_of(hash, static_cast<uint64_t>(owners)));
}

// What a GPU sorts by: the upper half of the hash, and more than that for padding, which is last of
// its table. The two largest halves share a key, so that no id has the key of padding. Ids with the
// same key differ in the low kTieBits bits of their hash.
constexpr uint32_t kPaddingSortKey = ~uint32_t{0};
constexpr int kTieBits = 33;

DYNEMB_HD uint32_t sort_key(Key id, HashFactors hash) {
  if (is_padding(id)) return kPaddingSortKey;
  auto const upper = static_cast<uint32_t>(hash_key(id, hash) >> 32);
  return upper == kPaddingSortKey ? kPaddingSortKey - 1 : upper;
}

// The owner of all ids with this key; -1 if it depends on the lower half of the hash. That is less
// than `owners` after a division by 2^32, and the two largest upper halves have the same owner.
DYNEMB_HD int32_t owner_of_sort_key(uint32_t key, int32_t owners) {
  auto const count = static_cast<uint64_t>(owners);
  auto const product = key * count;
  auto const least = product >> 32, most = (product + count - 1) >> 32;
  return least == most ? static_cast<int32_t>(least) : -1;
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
