// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/large_order.cuh: a batch of any size in order (cuda/gradients/keys.cuh): a kernel
// that makes the keys, and the passes of the sort (cuda/sort/segment_sort.cuh). The first kernel
// also does what the operation begins with, in blocks of its own: only kernels behind the sort need
// it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/gradients/keys.cuh"
#include "cuda/grid/prologue.cuh"
#include "cuda/sort/segment_sort.cuh"

namespace dynemb::cuda {

constexpr int kItemsInFlight = 8;                               // of a thread
constexpr int64_t kItemsOfRow = kItemsInFlight * kKeysThreads;  // at least
constexpr int kKeysBlocks = 2;                                  // of a multiprocessor

template <class SortKey>
struct GradientOrder : SortBuffers<SortKey> {
  int64_t num_items;
  KeyLayout keys_have;
  SortLayout layout;

  template <class Args>
  GradientOrder(Args const& args, Scratch& scratch)
      : SortBuffers<SortKey>(layout_of(args), total_ids(args), args.num_tables,
                             total_ids(args) / kItemsOfRow + args.num_features, scratch),
        num_items(total_ids(args)),
        keys_have(args),
        layout(layout_of(args)) {}

  SortedGradients<SortKey> sorted(int buffer) const {
    return {this->keys[buffer], this->items[buffer], num_items, keys_have.slot_bits};
  }

 private:
  template <class Args>
  static SortLayout layout_of(Args const& args) {
    return SortLayout(KeyLayout(args).slot_bits, total_ids(args));
  }
};

template <class Size, class SortKey, class Op>
struct KeysCall {
  Prologue<Size, Op> prologue;
  uint32_t prologue_blocks;  // the first ones
  int64_t items_of_row;
  SortKey* keys;
  int slot_bits;
  SortLayout layout;
  SortTally tally;
  Zeros zeros;
};

// The items that a block makes the keys of.
struct KeyRange {
  int32_t feature;
  int64_t begin, end;  // positions
};

template <class Call>
__device__ __forceinline__ KeyRange range_of_row(Call const& call, int64_t items_of_row,
                                                 uint32_t row) {
  auto const f = feature_of_block(call, row);
  auto const begin = int64_t{row - call.first_block[f]} * items_of_row;
  return {f, begin, min(begin + items_of_row, call.features[f].num_ids)};
}

// Makes the keys of a range, and adds up the digits of the first pass in `counts`.
template <class Size, class SortKey, class Op>
__device__ __forceinline__ void make_keys(KeysCall<Size, SortKey, Op> const& p,
                                          KeyRange const& range, uint32_t* counts) {
  auto const& call = p.prologue.call;
  auto const& feature = call.features[range.feature];
  auto const& of_keys = call.tables[feature.table];
  auto const table = static_cast<SortKey>(feature.table) << p.slot_bits;
  auto* const keys = p.keys + call.first_item[range.feature];
  // Loaded together: the compiler cannot prove that no key written is a slot to be read.
  int32_t slots[kItemsInFlight];
  auto const load = [&](int64_t base) {
#pragma unroll
    for (int u = 0; u < kItemsInFlight; ++u) {
      auto const position = base + u * kKeysThreads;
      slots[u] = position < range.end ? feature.slots[position] : kPaddingSlot;
    }
  };
  auto base = range.begin + threadIdx.x;
  load(base);  // before the loads of the limit, which take as long
  auto const limit = slot_limit(of_keys, feature, p.prologue.op.stamp_of(feature.table));
  uint32_t foreign = 0;
  for (; base < range.end; base += kItemsOfRow, load(base)) {
#pragma unroll
    for (int u = 0; u < kItemsInFlight; ++u) {
      auto const position = base + u * kKeysThreads;
      if (position >= range.end) break;
      auto const live = is_live(slots[u], limit);
      foreign += is_foreign(slots[u], limit) ? 1 : 0;
      auto const key =
          live ? table | static_cast<SortKey>(slots[u]) : SortedGradients<SortKey>::kNoRow;
      keys[position] = key;
      atomicAdd(counts + (static_cast<uint32_t>(key) & p.layout.digit_mask()), 1u);
    }
  }
  count_foreign(p.prologue.op, of_keys, foreign);
}

template <class Size, class SortKey, class Op>
__global__ void __launch_bounds__(kKeysThreads, kKeysBlocks)
    keys_kernel(__grid_constant__ KeysCall<Size, SortKey, Op> const p) {
  __shared__ CounterRows own[Size::tables];
  __shared__ uint32_t counts[kDigits];
  if (blockIdx.x < p.prologue_blocks) {
    run_prologue(p.prologue,
                 Share{static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(p.prologue_blocks)},
                 own);
    return;
  }
  auto const row = blockIdx.x - p.prologue_blocks;
  auto const num_rows = gridDim.x - p.prologue_blocks;
  if (threadIdx.x < kDigits) counts[threadIdx.x] = 0;
  p.tally.clear(row * kKeysThreads + threadIdx.x, num_rows * kKeysThreads);
  p.zeros.clear(row, num_rows);
  __syncthreads();
  make_keys(p, range_of_row(p.prologue.call, p.items_of_row, row), counts);
  __syncthreads();
  if (threadIdx.x < kDigits) p.tally.rows[row * kDigits + threadIdx.x] = counts[threadIdx.x];
}

// ---- host ---------------------------------------------------------------------------------------

template <class Args>
int64_t num_rows(Args const& args, int64_t items_of_row) {
  int64_t rows = 0;
  for (int32_t f = 0; f < args.num_features; ++f) {
    rows += ceil_div(args.features[f].num_ids, items_of_row);
  }
  return rows;
}

// One turn of a block, or two where there would be more blocks than work at the same time.
template <class Args>
int64_t items_of_row(Args const& args) {
  int64_t largest = 0;
  for (int32_t t = 0; t < args.num_tables; ++t) {
    largest = std::max(largest, items_of_table(args, t));
  }
  auto const places = kKeysBlocks * multiprocessors() - prologue_blocks(args);
  auto const of_turn = items_of_row(largest, kItemsOfRow);
  if (num_rows(args, of_turn) <= places) return of_turn;
  return items_of_row(largest, 2 * kItemsOfRow);
}

// The items of a table are a segment.
template <int kMostTables, class Args>
Segments<kMostTables> segments_of(Args const& args, int64_t items_of_tile) {
  Segments<kMostTables> segments{args.num_tables, {0}, {0}, {0}};
  auto const of_row = items_of_row(args);
  for (int32_t t = 0; t < args.num_tables; ++t) {
    auto const items = items_of_table(args, t);
    int64_t rows = 0;
    for (int32_t f = 0; f < args.num_features; ++f) {
      auto const& feature = args.features[f];
      if (feature.table == t) rows += ceil_div(feature.num_ids, of_row);
    }
    segments.first_item[t + 1] = segments.first_item[t] + static_cast<uint32_t>(items);
    segments.first_tile[t + 1] =
        segments.first_tile[t] + static_cast<uint32_t>(ceil_div(items, items_of_tile));
    segments.first_row[t + 1] = segments.first_row[t] + static_cast<uint32_t>(rows);
  }
  return segments;
}

template <class Size, class SortKey, class Args, class Op>
cudaError_t launch_keys(Args const& args, CallView const& view, Op const& op,
                        GradientOrder<SortKey> const& order, Zeros const& zeros,
                        cudaStream_t stream) {
  KeysCall<Size, SortKey, Op> p;
  p.items_of_row = items_of_row(args);
  auto const cut = [&](FeatureRef const& feature) -> Cut {
    return {feature.num_ids, static_cast<int32_t>(p.items_of_row / kWarpsPerBlock)};
  };
  auto const rows = fill_prologue(args, cut, view, op, &p.prologue);
  p.prologue_blocks = static_cast<uint32_t>(prologue_blocks(args));
  p.keys = order.keys[0];
  p.slot_bits = order.keys_have.slot_bits;
  p.layout = order.layout;
  p.tally = order.tally;
  p.zeros = zeros;
  return launch(keys_kernel<Size, SortKey, Op>, rows + p.prologue_blocks, stream, p, 0,
                kKeysThreads);
}

template <class Size, class SortKey, class Args, class Op>
cudaError_t order_large(Args const& args, CallView const& view, Op const& op,
                        GradientOrder<SortKey> const& order, Zeros const& zeros,
                        SortedGradients<SortKey>* sorted, cudaStream_t stream) {
  DYNEMB_CUDA_TRY(launch_keys<Size>(args, view, op, order, zeros, stream));
  auto const segments = segments_of<Size::tables>(args, order.layout.items_of_tile());
  int last = 0;
  DYNEMB_CUDA_TRY(sort_segments<SortKey>(order, order.layout, segments, stream, &last));
  *sorted = order.sorted(last);
  return cudaSuccess;
}

}  // namespace dynemb::cuda
