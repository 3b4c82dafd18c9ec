// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cpu/probe.h: ids are probed in groups, as a pipeline of three stages that a group passes one
// turn apart: hash the keys and ask for the digests; compare the digests and ask for keys, and
// scores if they will be touched; compare the keys. So a core always has the cache misses of two
// groups in flight and never waits for the one that it has just asked for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/feature_ref.h"
#include "core/slot.h"
#include "core/table_ref.h"
#include "cpu/digest_match.h"

namespace dynemb::cpu {

constexpr int kProbeGroup = 32;  // ids; about as many misses as a core keeps in flight

template <Isa isa>
class Probe {
 public:
  // With `touches`, scores will be written where a key is found.
  Probe(TableRef const& table, FeatureRef const& feature, bool touches)
      : table_(table), feature_(feature), touches_(touches) {}

  // Calls found(position, slot) for positions in order, kMissingSlot for a key that is not there,
  // and group_done(position) when all positions before `position` have been a turn in the past.
  template <class Found, class GroupDone>
  void run(int64_t begin, int64_t end, Found const& found, GroupDone const& group_done) {
    auto const groups = (end - begin + kProbeGroup - 1) / kProbeGroup;
    auto const first_of = [&](int64_t g) { return begin + g * kProbeGroup; };
    auto const size_of = [&](int64_t g) {
      return static_cast<int>(std::min<int64_t>(kProbeGroup, end - first_of(g)));
    };
    for (int64_t g = 0; g < groups + 3; ++g) {
      if (g >= 3) group_done(first_of(g - 3) + size_of(g - 3));
      if (g >= 2 && g - 2 < groups) resolve(ring_[g % 2], first_of(g - 2), size_of(g - 2), found);
      if (g >= 1 && g - 1 < groups) match(ring_[(g - 1) % 2], size_of(g - 1));
      if (g < groups) start(ring_[g % 2], first_of(g), size_of(g));
    }
  }

 private:
  struct Probed {
    Key key;
    uint64_t hash;
    int64_t bucket;
    DigestMask mask;
  };

  void start(Probed* group, int64_t first, int size) const {
    for (int i = 0; i < size; ++i) {
      auto& id = group[i];
      id.key = load_key(feature_.ids, feature_.id_type, first + i);
      id.hash = hash_key(id.key);
      id.bucket = local_bucket_of(table_, id.hash);
      auto const* const digests = bucket_at(table_, id.bucket).digests;
      __builtin_prefetch(digests);
      __builtin_prefetch(digests + 64);
    }
  }

  void match(Probed* group, int size) const {
    for (int i = 0; i < size; ++i) {
      auto& id = group[i];
      auto const bucket = bucket_at(table_, id.bucket);
      id.mask = match_digests<isa>(bucket.digests, id.hash);
      auto const place = id.mask.first();  // if there is none, some place: a prefetch is harmless
      __builtin_prefetch(bucket.keys + place);
      if (touches_) __builtin_prefetch(bucket.scores + place, 1);
    }
  }

  template <class Found>
  void resolve(Probed* group, int64_t first, int size, Found const& found) const {
    for (int i = 0; i < size; ++i) found(first + i, slot_of(group[i]));
  }

  int32_t slot_of(Probed& id) const {
    if (is_reserved(id.key)) return kRefusedSlot;
    if (is_padding(id.key)) return kPaddingSlot;
    auto const* const keys = bucket_at(table_, id.bucket).keys;
    for (; !id.mask.empty(); id.mask.drop_first()) {
      auto const place = id.mask.first();
      if (keys[place] == id.key) return static_cast<int32_t>(id.bucket * kBucketCapacity + place);
    }
    return kMissingSlot;
  }

  TableRef const& table_;
  FeatureRef const& feature_;
  bool const touches_;
  Probed ring_[2][kProbeGroup];
};

}  // namespace dynemb::cpu
