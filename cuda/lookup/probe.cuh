// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/probe.cuh: core/find.h with 16-byte loads, 32 digests in flight at a time.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/find.h"
#include "core/group.h"
#include "core/keys.h"
#include "core/table_ref.h"

namespace dynemb::cuda {

// Holds the digests of a quarter of a bucket.
struct QuarterDigests {
  uint4 a, b;

  QuarterDigests() = default;

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

// A pair of a quarter (core/claim.h) before which none has an empty slot, or how many there are.
__device__ __forceinline__ int first_free_pair(QuarterDigests const& digests) {
  auto empty = candidates(digests, 0);
  empty |= empty >> 16;
  empty |= empty >> 8;
  return 2 * min(8, __clz(static_cast<int>(empty << 24)));
}

// The key of a slot if `wanted`, else that of an empty one; without a branch, which would keep the
// next load waiting.
__device__ __forceinline__ Key load_key_if(bool wanted, Entry const* entry) {
  auto key = kEmptyKey;
#ifdef __CUDA_ARCH__
  asm volatile("{\n .reg .pred p;\n setp.ne.s32 p, %2, 0;\n @p ld.global.u64 %0, [%1];\n}"
               : "+l"(key)
               : "l"(&entry->key), "r"(static_cast<int>(wanted)));
#else
  if (wanted) key = entry->key;
#endif
  return key;
}

// A key that a lane looks for.
struct Sought {
  Bucket bucket;
  Key key;
  uint64_t hash;
  bool wanted;  // else it is found nowhere: padding has the key of empty slots

  __device__ __forceinline__ uint32_t pattern() const {
    return uint32_t{digest_of(hash)} * 0x01010101u;
  }
};

// Where the key is, and where it would go.
struct Places {
  int found;      // -1 = nowhere
  int free_from;  // no pair before this one, in the key's order, has an empty slot; kBesideClaims
};

struct Found {
  int32_t slot;   // or kPaddingSlot, kRefusedSlot, kMissingSlot
  int free_from;  // of Places
};

// Is it the key of this place, which was a candidate? Candidates may also name a digest beside an
// equal one: 0 beside 1, an empty slot. Where keys are written to empty slots at the same time (a
// training lookup), such a one does not count.
template <bool kBesideClaims>
__device__ __forceinline__ bool is_at(Sought const& sought, int place, Key seen) {
  if (seen != sought.key || !sought.wanted) return false;
  return !kBesideClaims || sought.pattern() != 0x01010101u || sought.bucket.digests[place] != 0;
}

// What is left of a search after two candidates of the preferred quarter: `more` of them, and three
// quarters. Lanes of a warp look for different keys: each turn of a loop reads the key of one
// candidate of every lane, so that the reads overlap.
template <bool kBesideClaims>
__device__ __forceinline__ int find_elsewhere(Sought const& sought, uint32_t more) {
  auto const& bucket = sought.bucket;
  auto const first = preferred_quarter(sought.hash);
  // All three are read before the first is looked at.
  QuarterDigests const others[3] = {{bucket, first ^ 1}, {bucket, first ^ 2}, {bucket, first ^ 3}};
  auto const pattern = sought.pattern();
  uint32_t rest[4] = {more, candidates(others[0], pattern), candidates(others[1], pattern),
                      candidates(others[2], pattern)};
  while ((rest[0] | rest[1] | rest[2] | rest[3]) != 0) {
    auto const which = rest[0] != 0 ? 0 : rest[1] != 0 ? 1 : rest[2] != 0 ? 2 : 3;
    auto const found = rest[0] != 0   ? rest[0]
                       : rest[1] != 0 ? rest[1]
                       : rest[2] != 0 ? rest[2]
                                      : rest[3];
    auto const place = (first ^ which) * kQuarterBucket + place_of_candidate(lowest_bit(found));
    if (is_at<kBesideClaims>(sought, place, bucket.entries[place].key)) return place;
#pragma unroll
    for (int q = 0; q < 4; ++q) rest[q] = which == q ? found & (found - 1) : rest[q];
  }
  return -1;
}

// The same, called: inlined, it takes registers from a kernel that has rows in flight.
static __device__ __noinline__ int find_elsewhere_apart(uint8_t* digests, Entry* entries, Key key,
                                                        uint64_t hash, uint32_t more) {
  return find_elsewhere<false>(Sought{{digests, entries}, key, hash, true}, more);
}

enum class Elsewhere { kInlined, kCalled };

template <bool kBesideClaims, Elsewhere kElsewhere>
__device__ __forceinline__ int find_elsewhere(Sought const& sought, uint32_t more) {
  if constexpr (kElsewhere == Elsewhere::kInlined) {
    return find_elsewhere<kBesideClaims>(sought, more);
  } else {
    static_assert(!kBesideClaims, "a lookup that changes nothing");
    auto const& bucket = sought.bucket;
    return find_elsewhere_apart(bucket.digests, bucket.entries, sought.key, sought.hash, more);
  }
}

// The keys of a lane, side by side: two waits for all that lie in their preferred quarter, as most
// do while a bucket is not full. Two candidates of each are read at once: of a warp's lanes one or
// the other has a second one nearly always, and all would wait for it.
template <bool kBesideClaims, Elsewhere kElsewhere = Elsewhere::kInlined, int kKeys>
__device__ __forceinline__ void find_places(Sought const (&sought)[kKeys],
                                            Places (&places)[kKeys]) {
  QuarterDigests digests[kKeys];
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    digests[k] = QuarterDigests(sought[k].bucket, preferred_quarter(sought[k].hash));
  }
  uint32_t more[kKeys];
  int place[kKeys][2];
  Key seen[kKeys][2];
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    auto const first = preferred_quarter(sought[k].hash) * kQuarterBucket;
    more[k] = sought[k].wanted ? candidates(digests[k], sought[k].pattern()) : 0;
    places[k].free_from = kBesideClaims ? first_free_pair(digests[k]) : 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      place[k][i] = first + place_of_candidate(lowest_bit(more[k] | 1u << 31));
      seen[k][i] = load_key_if(more[k] != 0, sought[k].bucket.entries + place[k][i]);
      more[k] &= more[k] - 1;
    }
  }
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    places[k].found = -1;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (is_at<kBesideClaims>(sought[k], place[k][i], seen[k][i])) places[k].found = place[k][i];
    }
    if (sought[k].wanted && places[k].found < 0) {
      places[k].found = find_elsewhere<kBesideClaims, kElsewhere>(sought[k], more[k]);
    }
  }
}

// The slots of keys that may be padding or reserved. kBesideClaims: empty slots are claimed at the
// same time.
template <bool kBesideClaims, Elsewhere kElsewhere = Elsewhere::kInlined, int kKeys>
__device__ __forceinline__ void find_slots(TableRef const& table, Key const (&keys)[kKeys],
                                           Found (&found)[kKeys]) {
  Sought sought[kKeys];
  Places places[kKeys];
  int64_t bucket[kKeys];
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    auto const hash = hash_key(keys[k], table.hash);
    bucket[k] = local_bucket_of(table, hash);
    sought[k] = {bucket_at(table, bucket[k]), keys[k], hash, keys[k] < kFirstReservedKey};
  }
  find_places<kBesideClaims, kElsewhere>(sought, places);
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    found[k].free_from = places[k].free_from;
    if (places[k].found >= 0) {
      found[k].slot = static_cast<int32_t>(bucket[k] * kBucketCapacity + places[k].found);
    } else {
      found[k].slot = sought[k].wanted      ? kMissingSlot
                      : is_padding(keys[k]) ? kPaddingSlot
                                            : kRefusedSlot;
    }
  }
}

// Finds the slot of a single key.
__device__ __forceinline__ int32_t find_slot(TableRef const& table, Key key) {
  Found found[1];
  find_slots<false>(table, {key}, found);
  return found[0].slot;
}

}  // namespace dynemb::cuda
