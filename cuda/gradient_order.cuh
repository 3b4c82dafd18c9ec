// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradient_order.cuh: the positions of a batch, sorted by the row that their gradients go to.
//
// The key of an item is (table, slot), packed. The sort is stable, and the items of a table precede
// those of the next: so the bits of the table need not take part, and equal keys still end up side
// by side, in order of position. As many of them do as the last pass over the slot's bits has room
// for. Positions without a row have a key of ones and end up last.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/slot.h"
#include "cuda/call.cuh"
#include "cuda/pair_sort.cuh"

namespace dynemb::cuda {

constexpr int kPassBits = 8;  // of a pass of the sort

inline int bits_of(uint64_t largest) {
  int bits = 0;
  while (largest >> bits != 0) ++bits;
  return bits;
}

struct KeyLayout {
  int slot_bits;
  int key_bits;     // with those of the table
  int sorted_bits;  // the lowest

  template <class Args>
  explicit KeyLayout(Args const& args) {
    int64_t slots = 0;
    for (int32_t t = 0; t < args.num_tables; ++t) {
      slots = std::max(slots, args.tables[t].local_buckets * kBucketCapacity);
    }
    slot_bits = bits_of(static_cast<uint64_t>(slots));  // slots - 1 is not all ones
    key_bits = slot_bits + bits_of(static_cast<uint64_t>(args.num_tables - 1));
    auto const full_passes = (slot_bits + kPassBits - 1) / kPassBits * kPassBits;
    // The gradient of a bag is read once for each of its ids: that should find it in the cache, so
    // tables go one after the other.
    auto shared = false;
    for (int32_t f = 0; f < args.num_features; ++f) {
      shared |= args.features[f].num_bags < args.features[f].num_ids;
    }
    sorted_bits = shared ? key_bits : std::min(key_bits, full_passes);
  }
};

template <class SortKey>
struct GradientOrder {
  SortKey* keys[2];    // [items] sorted in turns
  uint32_t* items[2];  // [items]
  void* temporary;
  size_t temporary_bytes;
  int64_t num_items;
  KeyLayout layout;

  template <class Args>
  GradientOrder(Args const& args, Scratch& scratch) : num_items(total_ids(args)), layout(args) {
    for (auto& each : keys) each = scratch.take<SortKey>(num_items);
    for (auto& each : items) each = scratch.take<uint32_t>(num_items);
    temporary_bytes = 0;
    PairBuffers<SortKey> none;
    if (num_items > 0) {
      // Which bits are sorted is not known when scratch is measured: room for all.
      sort_pairs(nullptr, temporary_bytes, none, static_cast<uint32_t>(num_items), layout.key_bits,
                 nullptr);
    }
    temporary = scratch.take<char>(static_cast<int64_t>(temporary_bytes));
  }
};

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
  uint32_t* items;
  int slot_bits;
  uint64_t* zeros;  // [num_zeros] cleared beside: one launch less
  uint32_t num_zeros;
};

template <class Size, class SortKey>
__global__ void __launch_bounds__(kThreads)
    keys_kernel(__grid_constant__ KeysCall<Size, SortKey> const p) {
  auto const& call = p.call;
  auto const f = feature_of_block(call, blockIdx.x);
  auto const& feature = call.features[f];
  auto const position = int64_t{blockIdx.x - call.first_block[f]} * kThreads + threadIdx.x;
  if (position >= feature.num_ids) return;
  auto const slot = feature.slots[position];
  auto const item = call.first_item[f] + static_cast<uint32_t>(position);
  auto const table = static_cast<SortKey>(feature.table) << p.slot_bits;
  p.keys[item] = slot < 0 ? ~SortKey{0} : table | static_cast<SortKey>(slot);
  p.items[item] = item;
  if (item < p.num_zeros) p.zeros[item] = 0;
}

template <class Size, class SortKey, class Args>
cudaError_t sort_gradients(Args const& args, GradientOrder<SortKey> const& order, uint64_t* zeros,
                           uint32_t num_zeros, SortedGradients<SortKey>* sorted,
                           cudaStream_t stream) {
  KeysCall<Size, SortKey> p;
  auto const blocks = fill_call<Size>(args, cut_ids, &p.call);
  p.keys = order.keys[0];
  p.items = order.items[0];
  p.slot_bits = order.layout.slot_bits;
  p.zeros = zeros;
  p.num_zeros = num_zeros;
  keys_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(p);
  DYNEMB_CUDA_TRY(cudaGetLastError());
  PairBuffers<SortKey> pairs{{order.keys[0], order.keys[1]}, {order.items[0], order.items[1]}};
  auto bytes = order.temporary_bytes;
  DYNEMB_CUDA_TRY(sort_pairs(order.temporary, bytes, pairs, static_cast<uint32_t>(order.num_items),
                             order.layout.sorted_bits, stream));
  *sorted = {pairs.keys.Current(), pairs.items.Current(), order.num_items, order.layout.slot_bits};
  return cudaSuccess;
}

// 32 bits are enough for most calls, and sort in half the time.
template <class Args, class Function>
auto with_sort_key(Args const& args, Function const& function) {
  if (KeyLayout(args).key_bits < 32) return function(uint32_t{});
  return function(uint64_t{});
}

}  // namespace dynemb::cuda
