// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/given_order.cuh: the order of a batch (cuda/gradients/keys.cuh) where the caller
// knows it. The arrays are data: slots and positions that do not exist are left out here, so the
// kernels behind read and write within their arrays, whatever is given.
#pragma once

#include <cstdint>

#include "core/args.h"
#include "cuda/gradients/keys.cuh"
#include "cuda/gradients/large_order.cuh"
#include "cuda/grid/prologue.cuh"

namespace dynemb::cuda {

template <class Size, class SortKey, class Op>
struct GivenOrderCall {
  Prologue<Size, Op> prologue;
  uint32_t prologue_blocks;  // the first ones
  GivenOrder given;
  SortKey* keys;
  uint32_t* items;
  Zeros zeros;
};

template <class Size, class SortKey, class Op>
__global__ void __launch_bounds__(kThreads)
    given_order_kernel(__grid_constant__ GivenOrderCall<Size, SortKey, Op> const p) {
  __shared__ CounterRows own[Size::tables];
  if (blockIdx.x < p.prologue_blocks) {
    run_prologue(p.prologue,
                 Share{static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(p.prologue_blocks)},
                 own);
    return;
  }
  auto const& call = p.prologue.call;
  auto const& feature = call.features[0];
  auto const& table = call.tables[feature.table];
  auto const rank = blockIdx.x - p.prologue_blocks, size = gridDim.x - p.prologue_blocks;
  p.zeros.clear(rank, size);
  auto const limit = slot_limit(table, feature, p.prologue.op.stamp_of(feature.table));
  for (auto i = int64_t{rank} * kThreads + threadIdx.x; i < feature.num_ids;
       i += int64_t{size} * kThreads) {
    auto const slot = p.given.slots[i];
    auto const position = static_cast<uint32_t>(p.given.positions[i]);
    auto const exists = is_live(slot, limit) && position < feature.num_ids;
    p.keys[i] = exists ? static_cast<SortKey>(slot) : SortedGradients<SortKey>::kNoRow;
    p.items[i] = position;
  }
}

// Of one table and one feature, which has items.
template <class Size, class SortKey, class Args, class Op>
cudaError_t take_order(Args const& args, CallView const& view, Op const& op,
                       GradientOrder<SortKey> const& order, Zeros const& zeros,
                       SortedGradients<SortKey>* sorted, cudaStream_t stream) {
  GivenOrderCall<Size, SortKey, Op> p;
  fill_prologue(args, cut_ids, view, op, &p.prologue);
  p.prologue_blocks = static_cast<uint32_t>(prologue_blocks(args));
  p.given = args.order;
  p.keys = order.keys[0];
  p.items = order.items[0];
  p.zeros = zeros;
  *sorted = order.sorted(0);
  auto const blocks = persistent_blocks(ceil_div(order.num_items, kThreads), 8);
  return launch(given_order_kernel<Size, SortKey, Op>, blocks + p.prologue_blocks, stream, p);
}

template <class Size, class SortKey, class Op>
struct GivenPositionsCall {
  Prologue<Size, Op> prologue;
  uint32_t prologue_blocks;  // the first ones
  uint32_t num_items;
  int32_t const* positions;
  SortKey* keys;
  uint32_t* items;
  int slot_bits;
  Zeros zeros;
};

// What a block needs to know of the features.
template <class Size, class SortKey>
struct FeatureKeys {
  uint32_t first_item[Size::features];
  int32_t const* slots[Size::features];
  SortKey table[Size::features];
  uint32_t limit[Size::features];

  template <class Call, class Op>
  __device__ __forceinline__ void fill(Call const& call, Op const& op, int slot_bits) {
    for (auto f = static_cast<int32_t>(threadIdx.x); f < call.num_features; f += kThreads) {
      auto const& feature = call.features[f];
      first_item[f] = static_cast<uint32_t>(call.first_item[f]);
      slots[f] = feature.slots;
      table[f] = static_cast<SortKey>(feature.table) << slot_bits;
      limit[f] = slot_limit(call.tables[feature.table], feature, op.stamp_of(feature.table));
    }
    __syncthreads();
  }

  __device__ __forceinline__ SortKey key_of(uint32_t item, int32_t num_features) const {
    int32_t low = 0, high = num_features;  // first_item[low] <= item < first_item[high]
    while (high - low > 1) {
      auto const middle = (low + high) / 2;
      (first_item[middle] <= item ? low : high) = middle;
    }
    auto const slot = slots[low][item - first_item[low]];
    if (!is_live(slot, limit[low])) return SortedGradients<SortKey>::kNoRow;
    return table[low] | static_cast<SortKey>(slot);
  }
};

template <class Size, class SortKey, class Op>
__global__ void __launch_bounds__(kThreads)
    given_positions_kernel(__grid_constant__ GivenPositionsCall<Size, SortKey, Op> const p) {
  __shared__ CounterRows own[Size::tables];
  __shared__ FeatureKeys<Size, SortKey> features;
  if (blockIdx.x < p.prologue_blocks) {
    run_prologue(p.prologue,
                 Share{static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(p.prologue_blocks)},
                 own);
    return;
  }
  auto const& call = p.prologue.call;
  auto const rank = blockIdx.x - p.prologue_blocks, size = gridDim.x - p.prologue_blocks;
  p.zeros.clear(rank, size);
  features.fill(call, p.prologue.op, p.slot_bits);
  for (auto i = rank * kThreads + threadIdx.x; i < p.num_items; i += size * kThreads) {
    auto const item = static_cast<uint32_t>(p.positions[i]);
    p.keys[i] = item < p.num_items ? features.key_of(item, call.num_features)
                                   : SortedGradients<SortKey>::kNoRow;
    p.items[i] = item < p.num_items ? item : 0;
  }
}

// Takes the order of the items of all tables; the slots are those of the features.
template <class Size, class SortKey, class Args, class Op>
cudaError_t take_positions(Args const& args, CallView const& view, Op const& op,
                           GradientOrder<SortKey> const& order, Zeros const& zeros,
                           SortedGradients<SortKey>* sorted, cudaStream_t stream) {
  GivenPositionsCall<Size, SortKey, Op> p;
  fill_prologue(args, cut_ids, view, op, &p.prologue);
  p.prologue_blocks = static_cast<uint32_t>(prologue_blocks(args));
  p.num_items = static_cast<uint32_t>(order.num_items);
  p.positions = args.order.positions;
  p.keys = order.keys[0];
  p.items = order.items[0];
  p.slot_bits = order.keys_have.slot_bits;
  p.zeros = zeros;
  *sorted = order.sorted(0);
  auto const blocks = persistent_blocks(ceil_div(order.num_items, kThreads), 8);
  return launch(given_positions_kernel<Size, SortKey, Op>, blocks + p.prologue_blocks, stream, p);
}

}  // namespace dynemb::cuda
