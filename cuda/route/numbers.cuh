// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/route/numbers.cuh: numbers the distinct ids of a route, which lie in order.
//
// How many there are in each tile is known (cuda/route/ties.cuh): a block adds up those of the
// tiles before its own, so no block waits for another.
#pragma once

#include <cstdint>

#include "cuda/route/ties.cuh"

namespace dynemb::cuda {

struct NumbersCall {
  Key const* ids;
  uint32_t const* keys;      // in order
  uint32_t const* items;     // in that order, with marks
  uint32_t const* repaired;  // [items] where there is a mark
  uint32_t const* counts;    // [tiles] distinct ids
  uint32_t tiles_before;
  int32_t num_ids;  // of all groups
  int32_t* unique_of;
  int32_t* first;
  int32_t* starts;
  int32_t* order;  // or null
  RouteSegments segments;
  GroupPart parts[kMaxTables];
};

// Each warp of a block has a part of this memory.
template <int kItems>
struct NumbersMemory {
  uint32_t in_tiles_before[kWarpsPerBlock];
  uint32_t distinct[kWarpsPerBlock];
  unsigned firsts[kWarpsPerBlock][kItems];  // lanes where a distinct id begins
  uint32_t before[kWarpsPerBlock][kItems];  // distinct ids before those
};

struct Numberer {
  NumbersCall const& call;
  GroupPart const& part;
  uint32_t part_begin, part_end;  // items of the part

  __device__ __forceinline__ uint32_t item_at(uint32_t place) const {
    auto const item = call.items[place];
    return (item & kMixed) != 0 ? call.repaired[place] : item;
  }

  __device__ __forceinline__ int32_t segment_at(uint32_t place) const {
    auto owner = owner_of_sort_key(call.keys[place], part.owners);
    if (owner < 0) owner = owner_of(hash_key(call.ids[item_at(place)], part.hash), part.owners);
    return part.first_segment + owner;
  }

  __device__ __forceinline__ void start_segments(int32_t begin, int32_t end,
                                                 uint32_t number) const {
    for (auto s = begin; s < end; ++s) call.starts[s] = static_cast<int32_t>(number);
  }

  // `before` is the number of distinct ids before the place. Places where none begins are numbered
  // too, by how many there are before: each clears one of `first` from its end on.
  __device__ __forceinline__ void write(uint32_t place, uint32_t item, bool is_live, bool is_first,
                                        uint32_t before) const {
    auto const last = static_cast<uint32_t>(call.num_ids) - 1;
    auto const number = static_cast<int32_t>(before) - (is_first ? 0 : 1);
    call.unique_of[item] = is_live ? number : call.num_ids;
    if (call.order != nullptr) call.order[place] = static_cast<int32_t>(item);
    call.first[is_first ? before : last - (place - before)] =
        is_first ? static_cast<int32_t>(item) : call.num_ids;
  }

  // Whether a segment may begin at a place, or end with it.
  __device__ __forceinline__ bool may_start(uint32_t place, uint32_t key, uint32_t key_before,
                                            bool is_first) const {
    if (place == part_begin || place + 1 == part_end) return true;
    if (key == kPaddingSortKey) return key_before != kPaddingSortKey;
    auto const owner = owner_of_sort_key(key, part.owners);
    return is_first && (owner < 0 || owner != owner_of_sort_key(key_before, part.owners));
  }

  // Of the segments that begin at a place, or before it without an id, where those of the place
  // before have been done; and at the last place of the part of all others.
  __device__ __forceinline__ void mark_starts(uint32_t place, bool is_first,
                                              uint32_t before) const {
    auto const is_live = call.keys[place] != kPaddingSortKey;
    auto const is_new = place == part_begin;
    if (is_new || is_live || call.keys[place - 1] != kPaddingSortKey) {
      start_segments(is_new ? part.starts.begin : segment_at(place - 1) + 1,
                     is_live ? segment_at(place) + 1 : part.starts.end, before);
    }
    if (is_live && place + 1 == part_end) {
      start_segments(segment_at(place) + 1, part.starts.end, before + (is_first ? 1 : 0));
    }
  }
};

template <int kItems>
__global__ void __launch_bounds__(kThreads, 2)
    numbers_kernel(__grid_constant__ NumbersCall const call) {
  __shared__ NumbersMemory<kItems> memory;
  constexpr uint32_t kTile = kItems * kThreads;
  auto const [segment, begin, count] = tile_of_segments(call.segments, blockIdx.x, kTile);
  Numberer const numberer{call, call.parts[segment], call.segments.first_item[segment],
                          call.segments.first_item[segment + 1]};
  auto const warp = threadIdx.x / 32;
  auto const first = begin + first_in_tile<kItems>();
  auto const end = begin + count;

  uint32_t keys[kItems], items[kItems];
#pragma unroll
  for (int u = 0; u < kItems; ++u) {
    auto const place = first + u * 32;
    keys[u] = place < end ? call.keys[place] : kPaddingSortKey;
    items[u] = place < end ? call.items[place] : 0;
  }
  auto const has_before = lane_id() == 0 && first > numberer.part_begin && first < end;
  auto const key_before = has_before ? call.keys[first - 1] : kPaddingSortKey;
  uint32_t in_tiles_before = 0;
  auto const tile = call.tiles_before + blockIdx.x;
  for (auto t = threadIdx.x; t < tile; t += kThreads) in_tiles_before += call.counts[t];

  uint32_t distinct = 0, firsts = 0;  // a bit for each place of the thread
#pragma unroll
  for (int u = 0; u < kItems; ++u) {
    auto const place = first + u * 32;
    auto const before = value_before(keys, u, key_before);
    auto is_first = keys[u] != kPaddingSortKey && keys[u] != before;
    if ((items[u] & kMixed) != 0) {
      items[u] = call.repaired[place];
      if (!is_first) is_first = call.ids[items[u]] != call.ids[call.repaired[place - 1]];
    }
    distinct += is_first ? 1 : 0;
    firsts |= (is_first ? 1u : 0) << u;
  }
  in_tiles_before = sum_of_warp(in_tiles_before);
  distinct = sum_of_warp(distinct);
  if (lane_id() == 0) {
    memory.in_tiles_before[warp] = in_tiles_before;
    memory.distinct[warp] = distinct;
  }
  __syncthreads();
  uint32_t number = 0;
#pragma unroll
  for (uint32_t w = 0; w < kWarpsPerBlock; ++w) {
    number += memory.in_tiles_before[w] + (w < warp ? memory.distinct[w] : 0);
  }
  uint32_t marks = 0;
#pragma unroll
  for (int u = 0; u < kItems; ++u) {
    auto const place = first + u * 32;
    auto const is_first = (firsts >> u & 1) != 0;
    auto const lanes = __ballot_sync(kFullWarp, is_first);
    auto const key = keys[u], before = value_before(keys, u, key_before);
    if (place < end) {
      numberer.write(place, items[u], key != kPaddingSortKey, is_first,
                     number + static_cast<uint32_t>(__popc(lanes & lanes_below())));
      marks |= (numberer.may_start(place, key, before, is_first) ? 1u : 0) << u;
    }
    memory.firsts[warp][u] = lanes;
    memory.before[warp][u] = number;
    number += static_cast<uint32_t>(__popc(lanes));
  }
  __syncwarp();
  for (; marks != 0; marks &= marks - 1) {
    auto const u = static_cast<uint32_t>(__ffs(static_cast<int>(marks)) - 1);
    auto const lanes = memory.firsts[warp][u];
    numberer.mark_starts(
        first + u * 32, (firsts >> u & 1) != 0,
        memory.before[warp][u] + static_cast<uint32_t>(__popc(lanes & lanes_below())));
  }
}

}  // namespace dynemb::cuda
