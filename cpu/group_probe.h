// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/group_probe.h: ids are probed in groups, so that the cache misses of a group overlap: first
// all digests are on their way, then all keys and scores, then the keys are compared.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/feature_ref.h"
#include "core/find.h"
#include "core/slot.h"
#include "core/table_ref.h"

namespace dynemb::cpu {

constexpr int kProbeGroup = 16;  // ids; about as many misses as a core keeps in flight

struct Probed {
  Key key;
  uint64_t hash;
  int64_t bucket;
  int candidate;
};

inline void fetch_digests(TableRef const& table, Probed& id) {
  id.hash = hash_key(id.key);
  id.bucket = local_bucket_of(table, id.hash);
  auto const* const digests = bucket_at(table, id.bucket).digests;
  __builtin_prefetch(digests);
  __builtin_prefetch(digests + 64);
}

inline void fetch_candidate(TableRef const& table, Probed& id) {
  auto const bucket = bucket_at(table, id.bucket);
  id.candidate = next_candidate(bucket, id.hash, 0);
  if (id.candidate == kBucketCapacity) return;
  __builtin_prefetch(bucket.keys + id.candidate);
  __builtin_prefetch(bucket.scores + id.candidate);
}

inline int32_t slot_of(TableRef const& table, Probed const& id) {
  if (is_padding(id.key)) return kPaddingSlot;
  if (is_reserved(id.key)) return kRefusedSlot;
  auto const bucket = bucket_at(table, id.bucket);
  auto const place = find_from(bucket, id.key, id.hash, id.candidate);
  return place < 0 ? kMissingSlot : static_cast<int32_t>(id.bucket * kBucketCapacity + place);
}

// Calls function(position, slot) with kMissingSlot for a key that is not there.
template <class Function>
void for_each_probe(TableRef const& table, FeatureRef const& feature, int64_t begin, int64_t end,
                    Function const& function) {
  Probed group[kProbeGroup];
  for (auto first = begin; first < end; first += kProbeGroup) {
    auto const count = static_cast<int>(std::min<int64_t>(kProbeGroup, end - first));
    for (int i = 0; i < count; ++i) {
      group[i].key = load_key(feature.ids, feature.id_type, first + i);
      fetch_digests(table, group[i]);
    }
    for (int i = 0; i < count; ++i) fetch_candidate(table, group[i]);
    for (int i = 0; i < count; ++i) function(first + i, slot_of(table, group[i]));
  }
}

}  // namespace dynemb::cpu
