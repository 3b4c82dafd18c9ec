// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/table_content.h: what a table holds, wherever in a bucket it lies.
#pragma once

#include <map>
#include <vector>

#include "cpu/loops/row_ops.h"
#include "tests/core/test_table.h"

namespace dynemb::testing {

struct Live {
  uint64_t score, seen;
  std::vector<char> row;
  bool operator==(Live const&) const = default;
};

// Checks on the way that digests, keys and scores agree, and that no key is there twice.
inline std::map<Key, Live> content(TableRef const& table) {
  std::map<Key, Live> result;
  auto const bytes = table.dim * cpu::bytes_of(table.value_type);
  for (int64_t b = 0; b < table.local_buckets; ++b) {
    auto const bucket = bucket_at(table, b);
    for (int i = 0; i < kBucketCapacity; ++i) {
      CHECK((bucket.digests[i] == 0) == (bucket.entries[i].score == 0));
      if (bucket.entries[i].score == 0) continue;
      CHECK(bucket.digests[i] == digest_of(hash_key(bucket.entries[i].key, table.hash)));
      auto const* const row =
          static_cast<char const*>(table.values) + (b * kBucketCapacity + i) * bytes;
      auto const seen = seen_score(table, static_cast<int32_t>(b * kBucketCapacity + i));
      auto const live = Live{bucket.entries[i].score, seen, {row, row + bytes}};
      CHECK(result.emplace(bucket.entries[i].key, live).second);
    }
  }
  return result;
}

inline void check_same_content(TableRef const& ours, TableRef const& truth) {
  CHECK(content(ours) == content(truth));
  // The rest are nonces, which each of them has drawn for itself.
  for (int c = 0; c <= kMoment; ++c) CHECK(ours.counters[c] == truth.counters[c]);
}

// Slots may lie in other places of their bucket.
inline void check_same_slots(TableRef const& ours, Key const* ids, int32_t const* slots,
                             int32_t const* wanted, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    CHECK((slots[i] < 0) == (wanted[i] < 0));
    CHECK(slots[i] >= 0 || slots[i] == wanted[i]);
    CHECK(slots[i] < 0 || *key_at(ours, slots[i]) == ids[i]);
  }
}

}  // namespace dynemb::testing
