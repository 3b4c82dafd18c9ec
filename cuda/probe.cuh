// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/probe.cuh: core/find.h with 16-byte loads, 32 digests on their way at a time.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/find.h"
#include "core/group.h"
#include "core/keys.h"
#include "core/table_ref.h"

namespace dynemb::cuda {

// The digests of a quarter of a bucket.
struct QuarterDigests {
  uint4 a, b;

  __device__ __forceinline__ QuarterDigests(Bucket const& bucket, int quarter)
      : a(reinterpret_cast<uint4 const*>(bucket.digests)[quarter * 2]),
        b(reinterpret_cast<uint4 const*>(bucket.digests)[quarter * 2 + 1]) {}
};

// core's equal_bytes for 32 digests, packed into one word. A candidate of byte j of word w stands
// at bit 8 j + 7 - w.
__device__ __forceinline__ uint32_t candidates(QuarterDigests const& digests, uint32_t pattern) {
  auto const& [a, b] = digests;
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

// Candidates may also name a digest beside an equal one: 0 beside 1, an empty slot. Where keys are
// written to empty slots at the same time (a training lookup), such a one does not count.
__device__ __forceinline__ bool is_there(Bucket const& bucket, int place, uint32_t pattern) {
  return pattern != 0x01010101u || bucket.digests[place] != 0;
}

// Is it the key of this candidate?
template <bool kBesideClaims>
__device__ __forceinline__ bool is_at(Bucket const& bucket, int place, Key key, uint32_t pattern) {
  return bucket.entries[place].key == key && (!kBesideClaims || is_there(bucket, place, pattern));
}

// A pair of a quarter (core/claim.h) before which none has an empty slot, or how many there are.
__device__ __forceinline__ int first_free_pair(QuarterDigests const& digests) {
  auto empty = candidates(digests, 0);
  empty |= empty >> 16;
  empty |= empty >> 8;
  return 2 * min(8, __clz(static_cast<int>(empty << 24)));
}

// Where the key is, and where it would go.
struct Places {
  int found;      // -1 = nowhere
  int free_from;  // no pair before this one, in the key's order, has an empty slot; kBesideClaims
};

// Lanes of a warp look for different keys. Each turn of a loop reads the key of one candidate of
// every lane, so that the reads overlap. Few warps have a key outside its preferred quarter while
// the bucket is not full; then the others are read together.
template <bool kBesideClaims>
__device__ __forceinline__ Places find_places(Bucket const& bucket, Key key, uint64_t hash) {
  auto const pattern = uint32_t{digest_of(hash)} * 0x01010101u;
  auto const first = preferred_quarter(hash);
  Places result{-1, 0};
  {
    auto const digests = QuarterDigests(bucket, first);
    for (auto found = candidates(digests, pattern); found != 0; found &= found - 1) {
      auto const place = first * kQuarterBucket + place_of_candidate(lowest_bit(found));
      if (is_at<kBesideClaims>(bucket, place, key, pattern)) return {place, 0};
    }
    if (kBesideClaims) result.free_from = first_free_pair(digests);
  }
  // All three are read before the first is looked at.
  QuarterDigests const others[3] = {{bucket, first ^ 1}, {bucket, first ^ 2}, {bucket, first ^ 3}};
  auto second = candidates(others[0], pattern);
  auto third = candidates(others[1], pattern);
  auto fourth = candidates(others[2], pattern);
  while ((second | third | fourth) != 0) {
    auto const which = second != 0 ? 1 : third != 0 ? 2 : 3;
    auto const found = second != 0 ? second : third != 0 ? third : fourth;
    auto const place = (first ^ which) * kQuarterBucket + place_of_candidate(lowest_bit(found));
    if (is_at<kBesideClaims>(bucket, place, key, pattern)) return {place, 0};
    fourth = which == 3 ? found & (found - 1) : fourth;
    third = which == 2 ? found & (found - 1) : third;
    second = which == 1 ? found & (found - 1) : second;
  }
  return result;
}

// The slot of a key that may be padding or reserved, or kPaddingSlot, kRefusedSlot, kMissingSlot.
// kBesideClaims: empty slots are claimed at the same time; then `free_from` is that of Places.
template <bool kBesideClaims = false>
__device__ __forceinline__ int32_t find_slot(TableRef const& table, Key key,
                                             int* free_from = nullptr) {
  if (is_padding(key)) return kPaddingSlot;
  if (is_reserved(key)) return kRefusedSlot;
  auto const hash = hash_key(key);
  auto const bucket = local_bucket_of(table, hash);
  auto const places = find_places<kBesideClaims>(bucket_at(table, bucket), key, hash);
  if (kBesideClaims) *free_from = places.free_from;
  return places.found < 0 ? kMissingSlot
                          : static_cast<int32_t>(bucket * kBucketCapacity + places.found);
}

}  // namespace dynemb::cuda
