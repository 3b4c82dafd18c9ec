// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradient_order.cuh: the positions of a batch, sorted by the row that their gradients go to
// (cuda/gradient_keys.cuh), and the work that an update or a reduction begins with.
//
// A small batch takes one kernel (cuda/small_order.cuh). Else the prologue, the kernel that makes
// the keys and the passes of the sort (cuda/segment_sort.cuh) follow each other. The result is the
// same to the last bit.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/gradient_keys.cuh"
#include "cuda/prologue.cuh"
#include "cuda/segment_sort.cuh"
#include "cuda/small_order.cuh"

namespace dynemb::cuda {

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

  SortedGradients<SortKey> sorted(int buffer) const {
    return {keys[buffer], items[buffer], num_items, keys_have.slot_bits};
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

// What `Op` begins with, and a tally that is clear.
template <class Op>
struct BeginOrder {
  Op op;
  SortTally tally;

  __device__ void begin(Share const& share) const {
    op.begin(share);
    tally.clear_counts(share.rank, share.size);
  }

  template <class Call>
  __device__ NewCounters begin_table(Call const& call, TableRef const& table, int32_t t) const {
    return op.begin_table(call, table, t);
  }
};

template <class Size, class SortKey>
struct KeysCall {
  CallArgs<Size> call;
  SortKey* keys;
  int slot_bits;
  SortLayout layout;
  SortTally tally;
  Zeros zeros;
};

// A block makes the keys of a tile's worth of positions, and counts their digits. The tally's
// counts are zero already.
template <class Size, class SortKey>
__global__ void __launch_bounds__(kThreads)
    keys_kernel(__grid_constant__ KeysCall<Size, SortKey> const p) {
  __shared__ DigitCounts counts;
  counts.clear();
  p.tally.clear_words();
  p.zeros.clear(blockIdx.x, gridDim.x);
  __syncthreads();
  auto const& call = p.call;
  auto const f = feature_of_block(call, blockIdx.x);
  auto const& feature = call.features[f];
  auto const of_block = p.layout.items_of_thread * int64_t{kThreads};
  auto const begin = int64_t{blockIdx.x - call.first_block[f]} * of_block;
  auto const end = min(begin + of_block, feature.num_ids);
  auto const table = static_cast<SortKey>(feature.table) << p.slot_bits;
  // Asked for together: nobody can tell that a key written is not a slot to be read.
  constexpr int kInFlight = 8;
  for (auto base = begin + threadIdx.x; base < end; base += kInFlight * kThreads) {
    int32_t slots[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      auto const position = base + u * kThreads;
      slots[u] = position < end ? feature.slots[position] : -1;
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      auto const position = base + u * kThreads;
      if (position >= end) break;
      auto const key =
          slots[u] < 0 ? SortedGradients<SortKey>::kNoRow : table | static_cast<SortKey>(slots[u]);
      p.keys[call.first_item[f] + static_cast<uint32_t>(position)] = key;
      counts.add(p.layout, key);
    }
  }
  __syncthreads();
  counts.flush(p.tally, feature.table, p.layout.passes);
}

// ---- host ---------------------------------------------------------------------------------------

template <class Size, class SortKey, class Args>
cudaError_t launch_keys(Args const& args, GradientOrder<SortKey> const& order, Zeros const& zeros,
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
  return launch(keys_kernel<Size, SortKey>, blocks, stream, p);
}

template <class Size, class SortKey, class Args, class Op>
cudaError_t order_large(Args const& args, CallView const& view, Op const& op,
                        GradientOrder<SortKey> const& order, Zeros const& zeros,
                        SortedGradients<SortKey>* sorted, cudaStream_t stream) {
  auto const begin = BeginOrder<Op>{op, order.tally};
  DYNEMB_CUDA_TRY(launch_prologue<Size>(args, view, begin, stream));
  if (order.num_items == 0) return cudaSuccess;
  DYNEMB_CUDA_TRY(launch_keys<Size>(args, order, zeros, stream));
  auto const segments = segments_of<Size::tables>(args, order.layout.items_of_tile());
  int last = 0;
  DYNEMB_CUDA_TRY(
      sort_segments(order.keys, order.items, order.layout, order.tally, segments, stream, &last));
  *sorted = order.sorted(last);
  return cudaSuccess;
}

// Everything before the sums: what `op` begins with (cuda/prologue.cuh), the order of the batch,
// and zeros. Without items there is no order, and nothing to clear.
template <class Size, class SortKey, class Args, class Op>
cudaError_t order_gradients(Args const& args, CallView const& view, Op const& op,
                            GradientOrder<SortKey> const& order, Zeros const& zeros,
                            SortedGradients<SortKey>* sorted, cudaStream_t stream) {
  auto const small = SmallOrder<Size, SortKey, Op>(args);
  if (!small.fits()) {
    return order_large<Size>(args, view, op, order, zeros, sorted, stream);
  }
  *sorted = order.sorted(0);
  return small.launch(args, view, op, order.keys[0], order.items[0], order.layout,
                      order.keys_have.slot_bits, zeros, stream);
}

}  // namespace dynemb::cuda
