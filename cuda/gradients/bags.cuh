// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/gradients/bags.cuh: the bag that each position of a large batch lies in.
//
// Where bags differ in length, that takes a search among their offsets. In the order of slots the
// lanes of a warp would search at different ends of the array, and each step of each lane be a load
// of its own. Here a warp searches once for neighbours. Numbers go to a buffer that the sort has
// done with.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/feature_ref.h"
#include "cuda/gradients/keys.cuh"
#include "cuda/gradients/large_order.cuh"
#include "cuda/grid/call.cuh"
#include "cuda/grid/host.h"
#include "cuda/grid/warp.cuh"

namespace dynemb::cuda {

constexpr int kPositionsOfLane = 4;
constexpr int kPositionsOfWarp = 32 * kPositionsOfLane;
constexpr int kMostLooks = 4;  // of a warp at the next 32 offsets

struct BagsCall {
  CallView view;
  int64_t num_items;
  uint32_t* bags;
};

// bag_of, by all lanes of a warp for one position.
__device__ __forceinline__ int32_t bag_of_warp(FeatureRef const& feature, int64_t position) {
  auto low = 0, high = static_cast<int32_t>(feature.num_bags);
  while (high - low > 1) {
    auto const step = (high - low + 31) / 32;
    auto const probe = low + lane_id() * step;
    auto const begun =
        __ballot_sync(kFullWarp, probe < high && feature.offsets[min(probe, high)] <= position);
    low += max(__popc(begun) - 1, 0) * step;
    high = min(low + step, high);
  }
  return low;
}

// The bags of up to kPositionsOfWarp positions from `first` on: to[0], to[1], ...
__device__ __forceinline__ void write_bags(FeatureRef const& feature, int64_t first, int32_t count,
                                           uint32_t* to) {
  auto const bag = bag_of_warp(feature, first);
  int32_t begun[kPositionsOfLane] = {};  // bags after that one
  auto next = int64_t{bag} + 1;
  auto is_known = false;
#pragma unroll 1
  for (int look = 0; look < kMostLooks && !is_known; ++look, next += 32) {
    auto const index = next + lane_id();
    auto const offset = index < feature.num_bags ? feature.offsets[index] : 0x7fffffff;
    for (int i = 0; i < 32; ++i) {
      auto const begin = __shfl_sync(kFullWarp, offset, i);
#pragma unroll
      for (int u = 0; u < kPositionsOfLane; ++u) {
        begun[u] += begin <= first + u * 32 + lane_id() ? 1 : 0;
      }
    }
    is_known = __shfl_sync(kFullWarp, offset, 31) >= first + count;
  }
#pragma unroll
  for (int u = 0; u < kPositionsOfLane; ++u) {
    auto const i = u * 32 + lane_id();
    if (i >= count) break;
    // Many empty bags: each lane searches for itself.
    to[i] = static_cast<uint32_t>(is_known ? bag + begun[u] : bag_of(feature, first + i));
  }
}

// Writes nothing for a feature whose bags all have the same length. A position behind the last bag
// gets the number of that bag, or 0 if there are no bags: no gradient is read for it.
template <class SortKey>
__global__ void __launch_bounds__(kThreads) bags_kernel(__grid_constant__ BagsCall const call) {
  auto const warp = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  auto item = warp * kPositionsOfWarp;
  auto const end = min(item + kPositionsOfWarp, call.num_items);
  while (item < end) {
    auto const place = place_of(call.view, static_cast<uint32_t>(item));
    auto const& feature = call.view.features[place.feature];
    auto const count = min(end - item, feature.num_ids - place.position);
    if (feature.bag_size == 0) {
      write_bags(feature, place.position, static_cast<int32_t>(count), call.bags + item);
    }
    item += count;
  }
}

template <class Args>
bool has_jagged_bags(Args const& args) {
  return std::any_of(args.features, args.features + args.num_features,
                     [](FeatureRef const& feature) { return feature.offsets != nullptr; });
}

// Finds the bags of a batch that order_large has sorted.
template <class SortKey, class Args>
cudaError_t find_bags(Args const& args, CallView const& view, GradientOrder<SortKey> const& order,
                      SortedGradients<SortKey>* sorted, cudaStream_t stream) {
  if (!has_jagged_bags(args)) return cudaSuccess;
  auto* const bags = order.items[sorted->items == order.items[0] ? 1 : 0];
  sorted->bags = bags;
  return launch(bags_kernel<SortKey>, ceil_div(order.num_items, kPositionsOfWarp * kWarpsPerBlock),
                stream, BagsCall{view, order.num_items, bags});
}

}  // namespace dynemb::cuda
