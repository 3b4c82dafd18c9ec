// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/core/route_truth.h: batches that are hard to route, and what their route is to be, from a
// sort by all bits. The hash is a bijection: any hashes can be made to meet.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "core/args.h"
#include "core/hash.h"
#include "core/route.h"
#include "tests/core/test_table.h"

namespace dynemb::testing {

// The id that has this hash. An odd factor is inverted by Newton's steps.
inline Key id_of_hash(uint64_t hash, HashFactors const& factors = test_hash) {
  auto const inverse = [](uint64_t factor) {
    auto result = factor;
    for (int step = 0; step < 6; ++step) result *= 2 - factor * result;
    return result;
  };
  hash ^= hash >> 33;
  hash *= inverse(factors.second);
  hash ^= hash >> 33;
  hash *= inverse(factors.first);
  return hash ^ (hash >> 33);
}

struct RouteBatch {
  std::vector<RoutePart> parts;
  std::vector<Key> ids;
  int32_t num_segments = 0;

  // `of_each`: buckets of an owner, of which the last owners lack some.
  void add(std::vector<Key> const& of_part, int32_t owners, int32_t gap = 0,
           HashFactors const& hash = test_hash, uint32_t of_each = 1, uint32_t lacking = 0) {
    auto const buckets = static_cast<uint32_t>(owners) * of_each - lacking;
    parts.push_back({static_cast<int64_t>(of_part.size()), num_segments + gap,
                     owners_of(buckets, of_each), hash});
    num_segments += gap + owners;
    ids.insert(ids.end(), of_part.begin(), of_part.end());
  }
};

struct RouteResult {
  std::vector<int32_t> unique_of, first, starts, order;

  explicit RouteResult(RouteBatch const& batch)
      : unique_of(batch.ids.size(), -7),
        first(batch.ids.size(), -7),
        starts(size_t(batch.num_segments) + 1, -7),
        order(batch.ids.size(), -7) {}

  bool operator==(RouteResult const& other) const {
    return unique_of == other.unique_of && first == other.first && starts == other.starts &&
           order == other.order;
  }
};

inline RouteArgs args_of(RouteBatch const& batch, RouteResult& result) {
  return {static_cast<int64_t>(batch.ids.size()),
          batch.ids.data(),
          batch.parts.data(),
          static_cast<int32_t>(batch.parts.size()),
          batch.num_segments,
          result.unique_of.data(),
          result.first.data(),
          result.starts.data(),
          result.order.data()};
}

// Where an owner's range of hashes begins: 2^64 * bucket / buckets, rounded up.
inline uint64_t first_hash(int32_t owner, Owners owners) {
  __extension__ using Wide = unsigned __int128;
  auto const product = static_cast<Wide>(owner) * owners.of_each << 64;
  auto const count = static_cast<Wide>(owners.buckets);
  return static_cast<uint64_t>((product + count - 1) / count);
}

inline RouteResult true_route(RouteBatch const& batch) {
  RouteResult result(batch);
  auto const n = static_cast<int32_t>(batch.ids.size());
  std::fill(result.first.begin(), result.first.end(), n);
  std::vector<int32_t> sizes(size_t(batch.num_segments), 0);
  int32_t number = 0, position = 0;
  auto next = result.order.begin();
  for (auto const& part : batch.parts) {
    std::map<uint64_t, std::vector<int32_t>> positions;  // by hash
    std::vector<int32_t> padding;
    for (int64_t i = 0; i < part.size; ++i, ++position) {
      auto const id = batch.ids[size_t(position)];
      result.unique_of[size_t(position)] = n;
      (id == ~Key{0} ? padding : positions[hash_key(id, part.hash)]).push_back(position);
    }
    for (auto const& [hash, where] : positions) {
      // The last whose range of hashes begins before.
      auto owner = static_cast<int32_t>((part.owners.buckets - 1) / part.owners.of_each);
      while (owner > 0 && hash < first_hash(owner, part.owners)) --owner;
      ++sizes[size_t(part.first_segment + owner)];
      result.first[size_t(number)] = where.front();
      for (auto const p : where) result.unique_of[size_t(p)] = number;
      next = std::copy(where.begin(), where.end(), next);
      ++number;
    }
    next = std::copy(padding.begin(), padding.end(), next);
  }
  int32_t start = 0;
  for (size_t s = 0; s < sizes.size(); ++s) {
    result.starts[s] = start;
    start += sizes[s];
  }
  result.starts.back() = start;
  return result;
}

// Ids some of which have the same upper half of the hash, or that of padding, or lie at the border
// of two owners.
inline std::vector<Key> hard_ids(std::mt19937_64& random, size_t size, size_t distinct,
                                 HashFactors const& hash = test_hash) {
  uint64_t const uppers[] = {0, 1, 0x55555555, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
  std::vector<Key> pool{~Key{0}, ~Key{1}, 0, id_of_hash(~uint64_t{0}, hash), id_of_hash(0, hash)};
  while (pool.size() < distinct) {
    auto const any = random();
    auto const upper = any % 3 == 0 ? random() >> 32 : uppers[any / 3 % 7];
    auto const lower = any % 5 == 0 ? random() % 4 : random() & 0xffffffff;
    auto const border = first_hash(static_cast<int32_t>(1 + any / 32 % 99), {100, 1});
    auto const at_border = any / 21 % 5 == 0;
    pool.push_back(id_of_hash(at_border ? border - any % 2 : upper << 32 | lower, hash));
  }
  std::shuffle(pool.begin(), pool.end(), random);
  pool.resize(distinct);
  std::vector<Key> ids;
  for (size_t i = 0; i < size; ++i) ids.push_back(pool[random() % distinct]);
  return ids;
}

// `distinct` ids with one upper half in turns, so that neighbours always differ.
inline std::vector<Key> alternating_ids(size_t size, uint64_t upper, size_t distinct) {
  std::vector<Key> ids;
  for (size_t i = 0; i < size; ++i) {
    ids.push_back(id_of_hash(upper << 32 | (i % distinct * 0x9e3779b9u & 0xffffffff)));
  }
  return ids;
}

// Half of the parts have a hash of their own.
inline RouteBatch random_batch(std::mt19937_64& random, size_t parts, size_t most) {
  RouteBatch batch;
  int32_t const owners[] = {1, 1, 2, 3, 4, 8, 100};
  for (size_t p = 0; p < parts; ++p) {
    auto const size = random() % 5 == 0 ? 0 : random() % most;
    auto const distinct = size_t{1} << random() % 9;
    auto const hash = random() % 2 == 0 ? test_hash : factors_of_seed(random());
    auto const of_part = owners[random() % 7];
    auto const of_each = random() % 2 == 0 ? uint32_t{1} : 1 + static_cast<uint32_t>(random() % 9);
    auto const lacking =
        static_cast<uint32_t>(random()) % (static_cast<uint32_t>(of_part) * of_each);
    batch.add(hard_ids(random, size, distinct, hash), of_part, static_cast<int32_t>(random() % 3),
              hash, of_each, lacking);
  }
  return batch;
}

}  // namespace dynemb::testing
