// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradient_order.cuh: the positions of a batch, sorted by the row that their gradients go to.
//
// The key of an item is (table, slot), packed. The items of a table precede those of the next and
// are sorted among themselves: so the bits of the table need not take part, and the gradients of a
// table's bags, each read once for every id of its bag, are still in the cache. Equal keys end up
// side by side, in order of position. Positions without a row have a key of ones and end up last
// of their table.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/slot.h"
#include "cuda/call.cuh"
#include "cuda/segment_sort.cuh"

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

template <class Args>
int64_t items_of_table(Args const& args, int32_t table) {
  int64_t items = 0;
  for (int32_t f = 0; f < args.num_features; ++f) {
    if (args.features[f].table == table) items += args.features[f].num_ids;
  }
  return items;
}

template <class SortKey>
struct GradientOrder {
  int64_t num_items;
  KeyLayout keys_have;
  SortLayout layout;
  SortKey* keys[2];    // [items] sorted in turns
  uint32_t* items[2];  // [items]
  SortTally tally;

  template <class Args>
  GradientOrder(Args const& args, Scratch& scratch)
      : num_items(total_ids(args)), keys_have(args), layout(keys_have.slot_bits, num_items) {
    for (auto& each : keys) each = scratch.take<SortKey>(num_items);
    for (auto& each : items) each = scratch.take<uint32_t>(num_items);
    // At most: when scratch is measured it is not known yet whose the items are.
    auto const tiles = num_items / layout.items_of_tile() + args.num_tables;
    auto const counts = int64_t{args.num_tables} * layout.passes * kDigits;
    auto const words = tiles * layout.passes * kDigits;
    tally.counts = scratch.take<uint32_t>(counts + kMostPasses);
    tally.tickets = tally.counts + counts;
    tally.words = scratch.take<uint32_t>(words);
    tally.num_counts = static_cast<uint32_t>(counts + kMostPasses);
    tally.num_words = static_cast<uint32_t>(words);
  }
};

// The items of a table are a segment.
template <int kMostTables, class Args>
Segments<kMostTables> segments_of(Args const& args, int64_t items_of_tile) {
  Segments<kMostTables> segments{args.num_tables, {0}, {0}};
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const items = items_of_table(args, t);
    segments.first_item[t + 1] = segments.first_item[t] + static_cast<uint32_t>(items);
    segments.first_tile[t + 1] =
        segments.first_tile[t] + static_cast<uint32_t>(ceil_div(items, items_of_tile));
  }
  return segments;
}

template <class SortKey>
struct SortedGradients {
  static constexpr SortKey kNoRow = ~SortKey{0};

  SortKey const* keys;
  uint32_t const* items;
  int64_t num_items;
  int slot_bits;

  __device__ __forceinline__ int32_t table_of(SortKey key) const {
    return static_cast<int32_t>(key >> slot_bits);
  }
  __device__ __forceinline__ int32_t slot_of(SortKey key) const {
    return static_cast<int32_t>(key & ((SortKey{1} << slot_bits) - 1));
  }
};

template <class Size, class SortKey>
struct KeysCall {
  CallArgs<Size> call;
  SortKey* keys;
  int slot_bits;
  SortLayout layout;
  SortTally tally;
  uint64_t* zeros;  // [num_zeros] cleared beside: one launch less
  uint32_t num_zeros;
};

template <class T>
__device__ __forceinline__ void clear_array(T* array, uint32_t count) {
  for (auto i = blockIdx.x * kThreads + threadIdx.x; i < count; i += gridDim.x * kThreads) {
    array[i] = 0;
  }
}

// A block makes the keys of a tile's worth of positions, and counts their digits.
template <class Size, class SortKey>
__global__ void __launch_bounds__(kThreads)
    keys_kernel(__grid_constant__ KeysCall<Size, SortKey> const p) {
  __shared__ DigitCounts counts;
  counts.clear();
  clear_array(p.tally.words, p.tally.num_words);
  clear_array(p.zeros, p.num_zeros);
  __syncthreads();
  auto const& call = p.call;
  auto const f = feature_of_block(call, blockIdx.x);
  auto const& feature = call.features[f];
  auto const of_block = p.layout.items_of_thread * int64_t{kThreads};
  auto const begin = int64_t{blockIdx.x - call.first_block[f]} * of_block;
  auto const end = min(begin + of_block, feature.num_ids);
  auto const table = static_cast<SortKey>(feature.table) << p.slot_bits;
  for (auto position = begin + threadIdx.x; position < end; position += kThreads) {
    auto const slot = feature.slots[position];
    auto const key =
        slot < 0 ? SortedGradients<SortKey>::kNoRow : table | static_cast<SortKey>(slot);
    p.keys[call.first_item[f] + static_cast<uint32_t>(position)] = key;
    counts.add(p.layout, key);
  }
  __syncthreads();
  counts.flush(p.tally, feature.table, p.layout.passes);
}

// The tally's counts are zero already: an earlier kernel has seen to that
// (SortTally::clear_counts).
template <class Size, class SortKey, class Args>
cudaError_t sort_gradients(Args const& args, GradientOrder<SortKey> const& order, uint64_t* zeros,
                           uint32_t num_zeros, SortedGradients<SortKey>* sorted,
                           cudaStream_t stream) {
  KeysCall<Size, SortKey> p;
  auto const cut = [&](FeatureRef const& feature) -> Cut {
    return {feature.num_ids, 32 * order.layout.items_of_thread};
  };
  auto const blocks = fill_call<Size>(args, cut, &p.call);
  p.keys = order.keys[0];
  p.slot_bits = order.keys_have.slot_bits;
  p.layout = order.layout;
  p.tally = order.tally;
  p.zeros = zeros;
  p.num_zeros = num_zeros;
  DYNEMB_CUDA_TRY((launch(keys_kernel<Size, SortKey>, blocks, stream, p)));
  auto const segments = segments_of<Size::tables>(args, order.layout.items_of_tile());
  int last = 0;
  DYNEMB_CUDA_TRY(
      sort_segments(order.keys, order.items, order.layout, order.tally, segments, stream, &last));
  *sorted = {order.keys[last], order.items[last], order.num_items, p.slot_bits};
  return cudaSuccess;
}

// 32 bits are enough for most calls, and sort in half the time.
template <class Args, class Function>
auto with_sort_key(Args const& args, Function const& function) {
  if (KeyLayout(args).key_bits < 32) return function(uint32_t{});
  return function(uint64_t{});
}

}  // namespace dynemb::cuda
