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

}  // namespace dynemb::cuda
