// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/probe.cuh: core/find.h with 16-byte loads, 32 digests on their way at a time.
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

__device__ __forceinline__ int place_of_candidate(int bit) { return (7 - bit % 8) * 4 + bit / 8; }

// The digests of a quarter of a bucket.
struct QuarterDigests {
  uint4 a, b;

  __device__ __forceinline__ QuarterDigests(Bucket const& bucket, int quarter)
      : a(reinterpret_cast<uint4 const*>(bucket.digests)[quarter * 2]),
        b(reinterpret_cast<uint4 const*>(bucket.digests)[quarter * 2 + 1]) {}
};

// Candidates may also name a digest beside an equal one: 0 beside 1, an empty slot. Where keys are
// written to empty slots at the same time (a training lookup), such a one does not count.
__device__ __forceinline__ bool is_there(Bucket const& bucket, int place, uint32_t pattern) {
  return pattern != 0x01010101u || bucket.digests[place] != 0;
}

// The place of the key in a quarter, or -1. Each turn of the loop reads the key of one candidate of
// every lane, so that the reads overlap.
template <bool kBesideClaims>
__device__ __forceinline__ int find_in_quarter(Bucket const& bucket, QuarterDigests const& digests,
                                               int quarter, Key key, uint32_t pattern) {
  for (auto found = candidates(digests.a, digests.b, pattern); found != 0; found &= found - 1) {
    auto const bit = __ffs(static_cast<int>(found)) - 1;
    auto const place = quarter * kQuarterBucket + place_of_candidate(bit);
    if (bucket.keys[place] == key && (!kBesideClaims || is_there(bucket, place, pattern))) {
      return place;
    }
  }
  return -1;
}

// The same as find_in_bucket. Lanes of a warp look for different keys. Few warps have a key outside
// its preferred quarter while the bucket is not full; then the others are read together.
template <bool kBesideClaims>
__device__ __forceinline__ int find_place(Bucket const& bucket, Key key, uint64_t hash) {
  auto const pattern = uint32_t{digest_of(hash)} * 0x01010101u;
  auto const first = preferred_quarter(hash);
  auto const place =
      find_in_quarter<kBesideClaims>(bucket, QuarterDigests(bucket, first), first, key, pattern);
  if (place >= 0) return place;
  auto const second = QuarterDigests(bucket, first ^ 1);
  auto const third = QuarterDigests(bucket, first ^ 2);
  auto const fourth = QuarterDigests(bucket, first ^ 3);
  auto result = find_in_quarter<kBesideClaims>(bucket, second, first ^ 1, key, pattern);
  if (result < 0) result = find_in_quarter<kBesideClaims>(bucket, third, first ^ 2, key, pattern);
  if (result < 0) result = find_in_quarter<kBesideClaims>(bucket, fourth, first ^ 3, key, pattern);
  return result;
}

// The slot of a key that may be padding or reserved, or kPaddingSlot, kRefusedSlot, kMissingSlot.
// kBesideClaims: empty slots are claimed at the same time.
template <bool kBesideClaims = false>
__device__ __forceinline__ int32_t find_slot(TableRef const& table, Key key) {
  if (is_padding(key)) return kPaddingSlot;
  if (is_reserved(key)) return kRefusedSlot;
  auto const hash = hash_key(key);
  auto const bucket = local_bucket_of(table, hash);
  auto const place = find_place<kBesideClaims>(bucket_at(table, bucket), key, hash);
  return place < 0 ? kMissingSlot : static_cast<int32_t>(bucket * kBucketCapacity + place);
}

}  // namespace dynemb::cuda
