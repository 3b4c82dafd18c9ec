// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/probe.cuh: core/find.h with 16-byte loads, 64 digests on their way at a time.
#pragma once

#include <cstdint>

#include "core/find.h"
#include "core/keys.h"
#include "core/table_ref.h"

namespace dynemb::cuda {

// core's equal_bytes for 32 digests, packed into one word. A candidate of byte j of word w stands
// at bit 8 j + 7 - w.
__device__ __forceinline__ uint32_t candidates(uint4 const& a, uint4 const& b, uint32_t pattern) {
  uint32_t const words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  uint32_t result = 0;
#pragma unroll
  for (int w = 0; w < 8; ++w) {
    auto const difference = words[w] ^ pattern;
    result |= ((difference - 0x01010101u) & ~difference & 0x80808080u) >> w;
  }
  return result;
}

__device__ __forceinline__ int place_of_candidate(int bit) {
  return bit / 32 * 32 + (7 - bit % 8) * 4 + bit % 32 / 8;
}

// The same as find_in_bucket. Lanes of a warp look for different keys; each turn of the inner loop
// reads the key of one candidate of every lane, so that the reads overlap. Few warps have a key
// outside its preferred half while the bucket is not full.
__device__ __forceinline__ int find_place(Bucket const& bucket, Key key, uint64_t hash) {
  auto const pattern = uint32_t{digest_of(hash)} * 0x01010101u;
#pragma unroll 1
  for (int look = 0; look < 2; ++look) {
    auto const half = look ^ preferred_half(hash);
    auto const* const digests = reinterpret_cast<uint4 const*>(bucket.digests) + half * 4;
    auto const a = digests[0], b = digests[1], c = digests[2], d = digests[3];
    auto found = uint64_t{candidates(a, b, pattern)} | uint64_t{candidates(c, d, pattern)} << 32;
    while (found != 0) {
      auto const bit = __ffsll(static_cast<long long>(found)) - 1;
      auto const place = half * 64 + place_of_candidate(bit);
      if (bucket.keys[place] == key) return place;
      found &= found - 1;
    }
  }
  return -1;
}

// The slot of a key that may be padding or reserved, or kPaddingSlot, kRefusedSlot, kMissingSlot.
__device__ __forceinline__ int32_t find_slot(TableRef const& table, Key key) {
  if (is_padding(key)) return kPaddingSlot;
  if (is_reserved(key)) return kRefusedSlot;
  auto const hash = hash_key(key);
  auto const bucket = local_bucket_of(table, hash);
  auto const place = find_place(bucket_at(table, bucket), key, hash);
  return place < 0 ? kMissingSlot : static_cast<int32_t>(bucket * kBucketCapacity + place);
}

}  // namespace dynemb::cuda
