// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/small_order.cuh: a small batch in order (cuda/gradients/keys.cuh) by one kernel.
//
// A cluster of blocks makes and sorts the keys of one table (cuda/sort/cluster_sort.cuh). One
// cluster more does what the operation begins with: only kernels behind this one need it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/gradients/keys.cuh"
#include "cuda/grid/cluster.cuh"
#include "cuda/grid/prologue.cuh"
#include "cuda/sort/cluster_sort.cuh"
#include "cuda/sort/segment_sort.cuh"

namespace dynemb::cuda {

// A table that has items: its features stand side by side in the call.
struct SmallSegment {
  int16_t first_feature;
  int16_t last_feature;
};

template <class Size, class SortKey, class Op>
struct SmallOrderCall {
  Prologue<Size, Op> prologue;
  SortKey* keys;  // [items] sorted
  uint32_t* items;
  SortLayout layout;
  int slot_bits;
  Zeros zeros;
  int32_t num_segments;
  SmallSegment segments[Size::tables];
};

// What an item of the segment brings, and what its slot has to be below.
struct GivenSlot {
  int32_t slot;
  uint32_t limit;
};

template <class Call>
__device__ __forceinline__ GivenSlot slot_of_item(Call const& call, SmallSegment const& segment,
                                                  bool current, uint32_t item) {
  auto const* const first_item = in_memory(call.first_item);
  int32_t low = segment.first_feature, high = segment.last_feature;
  while (high - low > 1) {  // first_item[low] <= item < first_item[high]
    auto const middle = (low + high) / 2;
    (first_item[middle] <= item ? low : high) = middle;
  }
  auto const& feature = in_memory(call.features)[low];
  auto const& table = call.tables[call.features[segment.first_feature].table];
  return {feature.slots[item - first_item[low]], current ? slot_limit(table, feature) : 0};
}

// A pair's key is the slot, or ones where there is no row.
constexpr uint32_t kNoSlot = ~0u;

template <class Size, class SortKey, class Op>
__device__ __forceinline__ void sort_table(SmallOrderCall<Size, SortKey, Op> const& p,
                                           SmallSegment const& segment, SliceMemory& memory) {
  auto const& call = p.prologue.call;
  auto const first = call.first_item[segment.first_feature];
  auto const num_items = call.first_item[segment.last_feature] - first;
  auto const& first_feature = call.features[segment.first_feature];
  auto const& table = call.tables[first_feature.table];
  auto const t = static_cast<SortKey>(first_feature.table);
  auto const one_feature = segment.last_feature - segment.first_feature == 1;
  auto const* const slots = first_feature.slots;
  auto const current = is_current(table, p.prologue.op.stamp_of(first_feature.table));
  auto const limit_of_one = current ? slot_limit(table, first_feature) : 0;
  uint32_t foreign = 0;
  auto const get = [&](uint32_t i) {
    auto const [slot, limit] = one_feature ? GivenSlot{slots[i], limit_of_one}
                                           : slot_of_item(call, segment, current, first + i);
    auto const live = is_live(slot, limit);
    foreign += is_foreign(slot, limit) ? 1 : 0;
    return SortPair{live ? static_cast<uint32_t>(slot) : kNoSlot, first + i};
  };
  auto const put = [&](uint32_t i, SortPair pair) {
    p.keys[first + i] =
        pair.x == kNoSlot ? SortedGradients<SortKey>::kNoRow : t << p.slot_bits | pair.x;
    p.items[first + i] = pair.y;
  };
  SliceSorter{memory, num_items, cluster_rank(), cluster_size(), p.layout.bits_of_pass}.run(
      p.layout.passes, get, put);
  count_foreign(p.prologue.op, table, foreign);
}

template <class Size, class SortKey, class Op>
__global__ void __launch_bounds__(kSortThreads)
    small_order_kernel(__grid_constant__ SmallOrderCall<Size, SortKey, Op> const p) {
  __shared__ CounterRows own[Size::tables];
  extern __shared__ uint4 shared[];
  auto const rank = static_cast<int32_t>(cluster_rank());
  auto const size = static_cast<int32_t>(cluster_size());
  auto const cluster = static_cast<int32_t>(blockIdx.x) / size;
  if (cluster < p.num_segments) {
    sort_table(p, p.segments[cluster], *reinterpret_cast<SliceMemory*>(shared));
  } else {
    p.zeros.clear(static_cast<uint32_t>(rank), static_cast<uint32_t>(size));
    run_prologue(p.prologue, Share{rank, size}, own);
  }
}

// ---- host ---------------------------------------------------------------------------------------

template <class Size, class SortKey, class Op>
class SmallOrder {
 public:
  using Call = SmallOrderCall<Size, SortKey, Op>;

  template <class Args>
  explicit SmallOrder(Args const& args) : num_items_(total_ids(args)) {
    for (int32_t t = 0; t < args.num_tables; ++t) {
      auto const items = items_of_table(args, t);
      if (items > 0) ++num_segments_;
      largest_ = std::max(largest_, items);
    }
  }

  // Whether one kernel does it, with all clusters running at the same time.
  bool fits() const {
    if (num_items_ == 0 || num_items_ > kSmallBatch) return false;
    if (largest_ > int64_t{kMostSlices} * kSlice) return false;
    auto const shape = this->shape();
    return shape.clusters <= most_clusters<small_order_kernel<Size, SortKey, Op>>(shape);
  }

  template <class Args>
  cudaError_t launch(Args const& args, CallView const& view, Op const& op, SortKey* keys,
                     uint32_t* items, SortLayout const& layout, int slot_bits, Zeros const& zeros,
                     cudaStream_t stream) const {
    Call p;
    fill_prologue(args, cut_ids, view, op, &p.prologue);
    p.keys = keys;
    p.items = items;
    p.layout = layout;
    p.slot_bits = slot_bits;
    p.zeros = zeros;
    fill_segments(&p);
    return launch_clusters(small_order_kernel<Size, SortKey, Op>, shape(), stream, p);
  }

 private:
  ClusterShape shape() const {
    int blocks = 1;
    while (blocks * int64_t{kSlice} < largest_) blocks *= 2;
    return {num_segments_ + 1, blocks, kSortThreads, sizeof(SliceMemory)};
  }

  static void fill_segments(Call* p) {
    auto const& call = p->prologue.call;
    p->num_segments = 0;
    int32_t table = -1;
    for (int32_t f = 0; f < call.num_features; ++f) {
      if (call.features[f].num_ids == 0) continue;
      if (call.features[f].table != table) {
        table = call.features[f].table;
        p->segments[p->num_segments++].first_feature = static_cast<int16_t>(f);
      }
      p->segments[p->num_segments - 1].last_feature = static_cast<int16_t>(f + 1);
    }
  }

  int64_t num_items_;
  int64_t largest_ = 0;  // items of a table
  int num_segments_ = 0;
};

}  // namespace dynemb::cuda
