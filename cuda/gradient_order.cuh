// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradient_order.cuh: the positions of a batch, sorted by the row that their gradients go to.
//
// A stable sort of (slot counted over all tables, item): the positions of a row lie side by side,
// in order of position. Positions without a live row get the key `total slots` and end up last.
#pragma once

#include <cstdint>
#include <cub/device/device_radix_sort.cuh>
#include <limits>

#include "core/slot.h"
#include "cuda/call.cuh"

namespace dynemb::cuda {

template <class SortKey>
struct GradientOrder {
  SortKey* keys[2];    // [items] sorted in turns
  uint32_t* items[2];  // [items]
  void* temporary;
  size_t temporary_bytes;
  int64_t num_items;
  SortKey total_slots;

  template <class Args>
  GradientOrder(Args const& args, Scratch& scratch)
      : num_items(total_ids(args)),
        total_slots(static_cast<SortKey>(dynemb::cuda::total_slots(args))) {
    for (auto& each : keys) each = scratch.take<SortKey>(num_items);
    for (auto& each : items) each = scratch.take<uint32_t>(num_items);
    temporary_bytes = 0;
    cub::DoubleBuffer<SortKey> key_buffer(nullptr, nullptr);
    cub::DoubleBuffer<uint32_t> item_buffer(nullptr, nullptr);
    if (num_items > 0) {
      cub::DeviceRadixSort::SortPairs(nullptr, temporary_bytes, key_buffer, item_buffer,
                                      static_cast<uint32_t>(num_items), 0, end_bit());
    }
    temporary = scratch.take<char>(static_cast<int64_t>(temporary_bytes));
  }

  int end_bit() const {
    int bits = 1;
    while (bits < std::numeric_limits<SortKey>::digits && total_slots >> bits != 0) ++bits;
    return bits;
  }
};

template <class SortKey>
struct SortedGradients {
  SortKey const* keys;
  uint32_t const* items;
  int64_t num_items;
  SortKey total_slots;
};

template <class Size, class SortKey>
struct KeysCall {
  CallArgs<Size> call;
  SortKey* keys;
  uint32_t* items;
  SortKey total_slots;
  bool counts_lost;
};

// A row may have left since the lookup: only a slot that still holds the id gets the gradient.
template <class Size, class SortKey>
__global__ void __launch_bounds__(kThreads)
    keys_kernel(__grid_constant__ KeysCall<Size, SortKey> const p) {
  auto const& call = p.call;
  auto const f = feature_of_block(call.first_block, call.num_features, blockIdx.x);
  auto const& feature = call.features[f];
  auto const& table = call.tables[feature.table];
  auto const position = int64_t{blockIdx.x - call.first_block[f]} * kThreads + threadIdx.x;
  auto lost = false;
  if (position < feature.num_ids) {
    auto const slot = feature.slots[position];
    auto key = p.total_slots;
    if (slot >= 0) {
      lost = *key_at(table, slot) != load_key(feature.ids, feature.id_type, position);
      if (!lost) key = static_cast<SortKey>(call.first_slot[feature.table] + slot);
    }
    auto const item = call.first_item[f] + static_cast<uint32_t>(position);
    p.keys[item] = key;
    p.items[item] = item;
  }
  auto const count = __syncthreads_count(lost);
  if (p.counts_lost && count > 0 && threadIdx.x == 0) {
    fetch_add(table.counters + kLostUpdates, static_cast<uint64_t>(count));
  }
}

template <class Size, class SortKey, class Args>
cudaError_t sort_gradients(Args const& args, GradientOrder<SortKey> const& order, bool counts_lost,
                           SortedGradients<SortKey>* sorted, cudaStream_t stream) {
  KeysCall<Size, SortKey> p;
  auto const blocks = fill_call<Size>(args, cut_ids, &p.call);
  p.keys = order.keys[0];
  p.items = order.items[0];
  p.total_slots = order.total_slots;
  p.counts_lost = counts_lost;
  keys_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(p);
  DYNEMB_CUDA_TRY(cudaGetLastError());
  cub::DoubleBuffer<SortKey> keys(order.keys[0], order.keys[1]);
  cub::DoubleBuffer<uint32_t> items(order.items[0], order.items[1]);
  auto bytes = order.temporary_bytes;
  DYNEMB_CUDA_TRY(cub::DeviceRadixSort::SortPairs(order.temporary, bytes, keys, items,
                                                  static_cast<uint32_t>(order.num_items), 0,
                                                  order.end_bit(), stream));
  *sorted = {keys.Current(), items.Current(), order.num_items, order.total_slots};
  return cudaSuccess;
}

// 32 bits are enough for the slots of most calls, and sort in half the time.
template <class Args, class Function>
auto with_sort_key(Args const& args, Function const& function) {
  if (total_slots(args) < int64_t{std::numeric_limits<uint32_t>::max()}) {
    return function(uint32_t{});
  }
  return function(uint64_t{});
}

}  // namespace dynemb::cuda
