// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/keys.cuh: what the positions of a batch are sorted by.
//
// The key of an item is (table, slot), packed. The items of a table precede those of the next and
// are sorted among themselves: so the bits of the table need not take part, and the gradients of a
// table's bags, each read once for every id of its bag, are still in the cache. Equal keys end up
// side by side, in order of position. Positions without a row have a key of ones and end up last
// of their table; so no kernel behind the sort sees a slot that the table does not have.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/feature_ref.h"
#include "core/slot.h"
#include "core/stamp.h"
#include "cuda/grid/call.cuh"
#include "cuda/grid/zeros.cuh"

namespace dynemb::cuda {

inline int bits_of(uint64_t largest) {
  int bits = 0;
  while (largest >> bits != 0) ++bits;
  return bits;
}

struct KeyLayout {
  int slot_bits;
  int key_bits;  // with those of the table

  template <class Args>
  explicit KeyLayout(Args const& args) {
    int64_t slots = 0;
    for (int32_t t = 0; t < args.num_tables; ++t) {
      slots = std::max(slots, args.tables[t].local_buckets * kBucketCapacity);
    }
    slot_bits = bits_of(static_cast<uint64_t>(slots));  // slots - 1 is not all ones
    key_bits = slot_bits + bits_of(static_cast<uint64_t>(args.num_tables - 1));
  }
};

// 32 bits are enough for most calls, and sort in half the time.
template <class Args, class Function>
auto with_sort_key(Args const& args, Function const& function) {
  if (KeyLayout(args).key_bits < 32) return function(uint32_t{});
  return function(uint64_t{});
}

template <class Args>
int64_t items_of_table(Args const& args, int32_t table) {
  int64_t items = 0;
  for (int32_t f = 0; f < args.num_features; ++f) {
    if (args.features[f].table == table) items += args.features[f].num_ids;
  }
  return items;
}

template <class SortKey>
struct SortedGradients {
  static constexpr SortKey kNoRow = ~SortKey{0};

  SortKey const* keys;
  uint32_t const* items;
  int64_t num_items;
  int slot_bits;
  uint32_t const* bags = nullptr;  // of each item, or null: see cuda/gradients/bags.cuh

  __device__ __forceinline__ int32_t table_of(SortKey key) const {
    return static_cast<int32_t>(key >> slot_bits);
  }
  __device__ __forceinline__ int32_t slot_of(SortKey key) const {
    return static_cast<int32_t>(key & ((SortKey{1} << slot_bits) - 1));
  }
  // The bag of an item, which stands at this position of the feature.
  __device__ __forceinline__ int64_t bag_of_item(FeatureRef const& feature, uint32_t item,
                                                 int64_t position) const {
    if (bags == nullptr || feature.bag_size > 0) return bag_of(feature, position);
    return int64_t{bags[item]};
  }
};

// Counts a thread's positions with slots that the table does not have; they get no key. The count
// is a number until the end: a branch at each position would make the next load wait.
template <class Op>
__device__ __forceinline__ void count_foreign(Op const& op, TableRef const& table, uint32_t count) {
  if (count > 0 && op.counts_lost()) fetch_add(table.counters + kLostUpdates, uint64_t{count});
}

}  // namespace dynemb::cuda
