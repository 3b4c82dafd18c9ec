// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/probe_test.cc: where a probe of a GPU finds a key, and where it says that a claim may
// begin, against loops over a bucket: many equal digests, digests of 1 beside empty slots, and
// slots with a claim but no digest yet.
#include "cuda/lookup/probe.cuh"

#include <vector>

#include "core/claim.h"
#include "tests/core/test_table.h"

namespace {

using namespace dynemb;
using dynemb::testing::random_at;
using dynemb::testing::test_hash;

struct Memory {
  alignas(32) uint8_t digests[kBucketCapacity] = {};
  alignas(32) Entry entries[kBucketCapacity];

  Bucket bucket() { return {digests, entries}; }
};

// Their digests are 1, 2 and 3 only, so that many are candidates.
std::vector<Key> similar_keys(size_t count) {
  std::vector<Key> keys;
  for (uint64_t i = 0; keys.size() < count; ++i) {
    auto const key = random_at(i);
    if (digest_of(hash_key(key, test_hash)) <= 3) keys.push_back(key);
  }
  return keys;
}

// A part of `sixteenths` is live; with `claims` some slots without a digest have a key.
void fill(Memory& memory, std::vector<Key> const& keys, uint64_t round, uint64_t sixteenths,
          bool claims) {
  for (int i = 0; i < kBucketCapacity; ++i) {
    auto const random = random_at(round << 8 | static_cast<uint64_t>(i));
    auto const key = keys[static_cast<size_t>(i)];
    auto const live = random % 16 < sixteenths;
    memory.digests[i] = live ? digest_of(hash_key(key, test_hash)) : uint8_t{0};
    memory.entries[i] = {live || (claims && random >> 8 & 1) ? key : kEmptyKey, live ? 7u : 0u};
  }
}

int find_by_loop(Memory const& memory, Key key) {
  for (int i = 0; i < kBucketCapacity; ++i) {
    if (memory.digests[i] != 0 && memory.entries[i].key == key) return i;
  }
  return -1;
}

bool is_free(Memory const& memory, uint64_t hash, int i) {
  auto const place = 2 * (i ^ nearest_pair(hash));
  return memory.digests[place] == 0 || memory.digests[place + 1] == 0;
}

int free_by_loop(Memory const& memory, uint64_t hash, int from) {
  while (from < kPairs && !is_free(memory, hash, from)) ++from;
  return from;
}

void check(Memory& memory, Key key, bool claims) {
  auto const bucket = memory.bucket();
  auto const hash = hash_key(key, test_hash);
  auto const wanted = find_by_loop(memory, key);
  // The warp also looks for another key and for padding.
  auto const other = ~key;
  cuda::Sought const sought[3] = {{bucket, other, hash_key(other, test_hash), true},
                                  {bucket, key, hash, true},
                                  {bucket, kEmptyKey, hash, false}};
  cuda::Places found[3];
  cuda::find_places<true>(sought, found);
  auto const places = found[1];
  CHECK(places.found == wanted);
  CHECK(found[0].found == find_by_loop(memory, other));
  CHECK(found[2].found == -1);
  if (!claims) {
    cuda::find_places<false>(sought, found);
    CHECK(found[1].found == wanted);
  }

  auto const free = free_by_loop(memory, hash, 0);
  CHECK(next_free_pair(bucket, hash, 0) == free);
  if (wanted < 0) CHECK(next_free_pair(bucket, hash, places.free_from) == free);
  for (int i = 0; i <= kPairs; ++i) {
    auto const next = next_free_pair(bucket, hash, i);
    CHECK(next >= i &&
          next <= free_by_loop(memory, hash, i));  // it may name a hint, and skips none
  }
}

void check_all() {
  auto const keys = similar_keys(2 * kBucketCapacity);
  for (uint64_t round = 0; round < 400; ++round) {
    auto const claims = round % 2 != 0;
    Memory memory;
    fill(memory, keys, round, round / 2 % 17, claims);
    for (auto const key : keys) check(memory, key, claims);
  }
}

}  // namespace

int main() {
  dynemb::testing::with_each_hash(check_all);
  std::puts("probe: ok");
  return 0;
}
