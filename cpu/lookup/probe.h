// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/lookup/probe.h: ids are probed in groups, as a pipeline of three stages that a group passes
// one turn apart: hash the keys and prefetch the digests; compare the digests and prefetch keys;
// compare the keys. So a core always has the cache misses of two groups in flight and never waits
// for the latest one.
//
// Only the digests of the half bucket that a key prefers are looked at, unless it is not there.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/feature_ref.h"
#include "core/find.h"
#include "core/slot.h"
#include "core/table_ref.h"
#include "cpu/lookup/digest_match.h"

namespace dynemb::cpu {

static_assert(kBucketBytes % kBucketCapacity == 0 && kCustomScoreBytes % kBucketCapacity == 0,
              "^ kHalfBucket leads from half to half");

// A group has so many ids. With half as many a core has fewer misses in flight than it could; more
// are no faster.
constexpr int kProbeGroup = 64;

template <Isa isa>
class Probe {
 public:
  Probe(TableRef const& table, FeatureRef const& feature)
      : table_(table),
        feature_(feature),
        end_of_bags_(end_of_bags(feature)),
        bucket_bytes_(bucket_bytes(table.policy)) {}

  // Calls found(position, slot, entry) for positions in order; for a key that is not there the slot
  // is kMissingSlot, and the entry is any. After each group of positions it calls
  // group_found(begin, end).
  template <class Found, class GroupFound>
  void run(int64_t begin, int64_t end, Found const& found, GroupFound const& group_found) {
    auto const groups = (end - begin + kProbeGroup - 1) / kProbeGroup;
    auto const first_of = [&](int64_t g) { return begin + g * kProbeGroup; };
    auto const size_of = [&](int64_t g) {
      return static_cast<int>(std::min<int64_t>(kProbeGroup, end - first_of(g)));
    };
    for (int64_t g = 0; g < groups + 2; ++g) {
      if (g >= 2) {
        resolve(ring_[g % 2], first_of(g - 2), size_of(g - 2), found);
        group_found(first_of(g - 2), first_of(g - 2) + size_of(g - 2));
      }
      if (g >= 1 && g - 1 < groups) match(ring_[(g - 1) % 2], size_of(g - 1));
      if (g < groups) start(ring_[g % 2], first_of(g), size_of(g));
    }
  }

 private:
  struct Group {
    Key keys[kProbeGroup];
    uint32_t buckets[kProbeGroup];
    uint8_t digests[kProbeGroup];
    // Of the half that is preferred: where its digests and entries begin, as bytes into the index,
    // and its first slot.
    uint64_t digests_at[kProbeGroup], entries_at[kProbeGroup];
    uint32_t first_slots[kProbeGroup];
    // Places in the half with the key's digest: its own is one of them, but for one id in a
    // hundred.
    uint8_t first[kProbeGroup], last[kProbeGroup];
  };

  void start(Group& group, int64_t first, int size) const {
    for (int i = 0; i < size; ++i) {
      group.keys[i] = load_key(feature_.ids, feature_.id_type, first + i);
    }
    for (auto i = std::max<int64_t>(end_of_bags_ - first, 0); i < size; ++i) {
      group.keys[i] = kEmptyKey;
    }
    hash(group);
    auto const* const index = table_.index;
#pragma GCC unroll 4
    for (int i = 0; i < size; ++i) __builtin_prefetch(index + group.digests_at[i]);
  }

  // Always a whole group, in loops that the compiler vectorises.
  void hash(Group& group) const {
    auto const num_buckets = table_.num_buckets;
    auto const factors = table_.hash;
    uint64_t hashes[kProbeGroup];
    for (int i = 0; i < kProbeGroup; ++i) hashes[i] = hash_key(group.keys[i], factors);
    for (int i = 0; i < kProbeGroup; ++i) {
      group.buckets[i] = static_cast<uint32_t>(bucket_of(hashes[i], num_buckets));
    }
    for (int i = 0; i < kProbeGroup; ++i) group.digests[i] = digest_of(hashes[i]);
    if (auto const local = static_cast<uint32_t>(table_.local_buckets); local != num_buckets) {
      for (int i = 0; i < kProbeGroup; ++i) group.buckets[i] %= local;
    }
    auto const bytes = static_cast<uint64_t>(bucket_bytes_);
    for (int i = 0; i < kProbeGroup; ++i) {
      auto const half = static_cast<uint32_t>(preferred_half(hashes[i]));
      auto const bucket = uint64_t{group.buckets[i]} * bytes;
      group.digests_at[i] = bucket + half * kHalfBucket;
      group.entries_at[i] = bucket + kEntriesOffset + half * kHalfBucket * sizeof(Entry);
      group.first_slots[i] = group.buckets[i] * kBucketCapacity + half * kHalfBucket;
    }
  }

  void match(Group& group, int size) const {
    auto const* const index = table_.index;
#pragma GCC unroll 4
    for (int i = 0; i < size; ++i) {
      auto const places = DigestMatch<isa>::match(index + group.digests_at[i], group.digests[i]);
      // If there is none, some places: their keys are others, and a prefetch is harmless.
      auto const first = static_cast<uint64_t>(__builtin_ctzll(places | uint64_t{1} << 63));
      auto const last = static_cast<uint64_t>(63 - __builtin_clzll(places | 1));
      auto const* const entries = index + group.entries_at[i];
      __builtin_prefetch(entries + first * sizeof(Entry));
      __builtin_prefetch(entries + last * sizeof(Entry));
      if (__builtin_expect(places == 0, 0)) {
        __builtin_prefetch(index + (group.digests_at[i] ^ kHalfBucket));
      }
      group.first[i] = static_cast<uint8_t>(first);
      group.last[i] = static_cast<uint8_t>(last);
    }
  }

  template <class Found>
  void resolve(Group const& group, int64_t begin, int size, Found const& found) const {
    auto* const index = table_.index;
#pragma GCC unroll 4
    for (int i = 0; i < size; ++i) {
      auto const key = group.keys[i];
      auto* const entries = reinterpret_cast<Entry*>(index + group.entries_at[i]);
      auto const place = static_cast<int32_t>(group.first[i]);
      auto const is_found = (entries[place].key == key) & (key < kFirstReservedKey);
      if (__builtin_expect(is_found, 1)) {
        found(begin + i, static_cast<int32_t>(group.first_slots[i]) + place, entries + place);
      } else {
        auto const slot = look_further(group, i);
        found(begin + i, slot, entry_at(table_, std::max(slot, 0)));
      }
    }
  }

  // Apart: the first place is the key's own but for one id in ten or twenty, and so cheaper as a
  // branch than the choice of two places without one.
  __attribute__((noinline)) int32_t look_further(Group const& group, int i) const {
    auto const key = group.keys[i];
    if (is_reserved(key)) return kRefusedSlot;
    if (is_padding(key)) return kPaddingSlot;
    auto const* const entries = reinterpret_cast<Entry const*>(table_.index + group.entries_at[i]);
    if (entries[group.last[i]].key == key) {
      return static_cast<int32_t>(group.first_slots[i]) + group.last[i];
    }
    auto places = match_digests<isa>(digests_of(group, i), group.digests[i]);
    for (; !places.empty(); places.drop_first()) {
      if (entries_of(group, i)[places.first()].key == key) return slot_of(group, i, places.first());
    }
    return kMissingSlot;
  }

  static int32_t slot_of(Group const& group, int i, int place) {
    return static_cast<int32_t>(group.buckets[i] * kBucketCapacity) + place;
  }
  uint8_t const* digests_of(Group const& group, int i) const {
    return table_.index + int64_t{group.buckets[i]} * bucket_bytes_;
  }
  Entry const* entries_of(Group const& group, int i) const {
    return reinterpret_cast<Entry const*>(digests_of(group, i) + kEntriesOffset);
  }

  TableRef const& table_;
  FeatureRef const& feature_;
  int64_t end_of_bags_;
  int64_t bucket_bytes_;
  Group ring_[2];
};

}  // namespace dynemb::cpu
