// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/grid/call.cuh: the tables and features of one call, as kernels see them.
//
// A kernel in which a block works on one feature takes them as a parameter: they are constants
// then. Kernels that meet the features in any order read a copy in scratch, which the first kernel
// of the operation makes (cuda/grid/prologue.cuh). The parameter comes in two sizes, because the
// host copies all of it, and so does the GPU before a kernel starts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/args.h"
#include "cuda/grid/host.h"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

template <int kTables, int kFeatures>
struct CallSize {
  static constexpr int tables = kTables;
  static constexpr int features = kFeatures;
};

template <class Size>
struct CallArgs {
  int32_t num_tables;
  int32_t num_features;
  TableRef tables[Size::tables];
  FeatureRef features[Size::features];
  int64_t first_slot[Size::tables + 1];      // of each table, counted over all tables
  uint32_t first_item[Size::features + 1];   // of each feature; an item is a position of a feature
  uint32_t first_block[Size::features + 1];  // of each feature in the grid of the kernel
  uint32_t blocks_of_each;                   // feature, if all have as many; else 0
  int32_t items_per_warp[Size::features];    // in that grid
};

// Holds the same call in device memory.
struct CallView {
  int32_t num_tables;
  int32_t num_features;
  TableRef* tables;
  FeatureRef* features;
  int64_t* first_slot;
  uint32_t* first_item;
  bool* checks_keys;       // of each table: may a slot belong to another id than at the lookup?
  uint32_t items_of_each;  // feature, if all have as many; else 0
};

// Makes an array of a kernel's parameter readable as any other memory, by all lanes at once. Lanes
// that read different places of a constant are served one after the other.
template <class T>
__device__ __forceinline__ T const* in_memory(T const* parameter) {
#ifdef __CUDA_ARCH__
  asm("" : "+l"(parameter));
#endif
  return parameter;
}

struct Place {
  int32_t feature;
  int64_t position;
};

__device__ __forceinline__ Place place_of(CallView const& view, uint32_t item) {
  if (view.items_of_each != 0) {
    auto const feature = item / view.items_of_each;
    return {static_cast<int32_t>(feature), int64_t{item - feature * view.items_of_each}};
  }
  int32_t low = 0, high = view.num_features;  // first_item[low] <= item < first_item[high]
  while (high - low > 1) {
    auto const middle = (low + high) / 2;
    (view.first_item[middle] <= item ? low : high) = middle;
  }
  return {low, int64_t{item - view.first_item[low]}};
}

__device__ __forceinline__ int32_t table_of(CallView const& view, int64_t linear_slot) {
  int32_t low = 0, high = view.num_tables;
  while (high - low > 1) {
    auto const middle = (low + high) / 2;
    (view.first_slot[middle] <= linear_slot ? low : high) = middle;
  }
  return low;
}

// The feature that a block works on. Features of one size, the usual case, need a division only;
// else a search, by all lanes alike: lanes that read different places of a kernel's parameters are
// served one after the other.
template <class Call>
__device__ __forceinline__ int32_t feature_of_block(Call const& call, uint32_t block) {
  if (call.blocks_of_each != 0) return static_cast<int32_t>(block / call.blocks_of_each);
  int32_t low = 0, high = call.num_features;  // first_block[low] <= block < first_block[high]
  while (high - low > 1) {
    auto const middle = (low + high) / 2;
    (call.first_block[middle] <= block ? low : high) = middle;
  }
  return low;
}

// ---- host ---------------------------------------------------------------------------------------

template <class Function>
cudaError_t with_call_size(int32_t num_tables, int32_t num_features, Function const& function) {
  if (num_tables <= 32 && num_features <= 32) return function(CallSize<32, 32>{});
  return function(CallSize<kMaxTables, kMaxFeatures>{});
}

template <class Args>
int64_t total_ids(Args const& args) {
  int64_t total = 0;
  for (int32_t f = 0; f < args.num_features; ++f) total += args.features[f].num_ids;
  return total;
}

template <class Args>
int64_t total_slots(Args const& args) {
  int64_t total = 0;
  for (int32_t t = 0; t < args.num_tables; ++t) total += args.tables[t].local_buckets;
  return total * kBucketCapacity;
}

// Items are numbered, and counted beside two flags (cuda/sort/segment_sort.cuh), in 32 bits.
template <class Args>
bool is_countable(Args const& args) {
  return total_ids(args) < int64_t{1} << 30;
}

// How a kernel cuts the items of a feature into pieces for its warps.
struct Cut {
  int64_t items;
  int32_t per_warp;
};

// Puts the features of a table side by side, otherwise in the order given.
template <class Args>
void order_by_table(Args const& args, int32_t* order) {
  for (int32_t f = 0; f < args.num_features; ++f) order[f] = f;
  std::stable_sort(order, order + args.num_features, [&](int32_t a, int32_t b) {
    return args.features[a].table < args.features[b].table;
  });
}

// Returns the number of blocks, of `warps` each. `cut(feature)` gives the Cut of a feature. Kernels
// see the features of a table side by side (why: cuda/gradients/order.cuh).
template <class Size, class Args, class CutFunction>
int64_t fill_call(Args const& args, CutFunction const& cut, CallArgs<Size>* call,
                  int warps = kWarpsPerBlock) {
  call->num_tables = args.num_tables;
  call->num_features = args.num_features;
  int64_t slots = 0, items = 0, blocks = 0;
  for (int32_t t = 0; t < args.num_tables; ++t) {
    call->tables[t] = args.tables[t];
    call->first_slot[t] = slots;
    slots += args.tables[t].local_buckets * kBucketCapacity;
  }
  int32_t order[Size::features];
  order_by_table(args, order);
  for (int32_t f = 0; f < args.num_features; ++f) {
    auto const& feature = args.features[order[f]];
    auto const piece = cut(feature);
    call->features[f] = feature;
    call->first_item[f] = static_cast<uint32_t>(items);
    call->first_block[f] = static_cast<uint32_t>(blocks);
    call->items_per_warp[f] = piece.per_warp;
    items += feature.num_ids;
    blocks += ceil_div(piece.items, int64_t{piece.per_warp} * warps);
  }
  call->first_slot[args.num_tables] = slots;
  call->first_item[args.num_features] = static_cast<uint32_t>(items);
  call->first_block[args.num_features] = static_cast<uint32_t>(blocks);
  call->blocks_of_each = call->num_features == 0 ? 0 : call->first_block[1];
  for (int32_t f = 1; f < args.num_features; ++f) {
    auto const own = call->first_block[f + 1] - call->first_block[f];
    if (own != call->first_block[1]) call->blocks_of_each = 0;
  }
  return blocks;
}

// Cuts a feature so that each id has a thread.
inline Cut cut_ids(FeatureRef const& feature) { return {feature.num_ids, 32}; }

template <class Args>
uint32_t items_of_each(Args const& args) {
  auto const same = [&](FeatureRef const& f) { return f.num_ids == args.features[0].num_ids; };
  auto const all = std::all_of(args.features, args.features + args.num_features, same);
  return all && args.num_features > 0 ? static_cast<uint32_t>(args.features[0].num_ids) : 0;
}

template <class Args>
CallView take_view(Args const& args, Scratch& scratch) {
  return {args.num_tables,
          args.num_features,
          scratch.take<TableRef>(args.num_tables),
          scratch.take<FeatureRef>(args.num_features),
          scratch.take<int64_t>(args.num_tables + 1),
          scratch.take<uint32_t>(args.num_features + 1),
          scratch.take<bool>(args.num_tables),
          items_of_each(args)};
}

}  // namespace dynemb::cuda
