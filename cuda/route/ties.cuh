// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/route/ties.cuh: repairs the order of ids that differ in the low bits of their hash only, by
// which they have not been sorted; and counts distinct ids.
//
// A run is a stretch of equal keys of one part. Nearly all runs are one id, in order of position.
// One pass over neighbours finds the others, mixed runs: about one in a part of 100,000 ids. The
// block that sees the first boundary between two ids in a run sorts all of the run, however long it
// is. It writes the sorted items beside the old ones, and only then marks the old ones. Other
// blocks may still be reading these, and see the same items with the mark or without.
#pragma once

#include <cstdint>

#include "cuda/route/groups.cuh"

namespace dynemb::cuda {

constexpr uint32_t kMixed = 1u << 31;  // of an item: look into `repaired`
constexpr uint32_t kNowhere = ~0u;

struct TiesCall {
  Key const* ids;
  uint32_t const* keys;  // in order
  uint32_t* items;       // in that order
  uint32_t* repaired;    // [items] those of mixed runs
  uint32_t* spare;       // [items] for them
  uint32_t* counts;      // [tiles] distinct ids
  uint32_t tiles_before;
  RouteSegments segments;
  HashFactors hash[kMaxTables];  // of each segment
};

struct TiesMemory {
  uint32_t ranked[kWarpsPerBlock][kDigits];
  uint32_t base[kDigits];
  uint2 of_warps[kWarpsPerBlock];
  uint64_t hashes[kThreads];
  uint32_t least;
  uint32_t distinct;
};

struct Run {
  uint32_t begin, end;
  __device__ __forceinline__ uint32_t size() const { return end - begin; }
};

// Sorts one run by a block.
struct RunSorter {
  TiesCall const& call;
  TiesMemory& memory;
  Run run;
  HashFactors hash;
  uint32_t part_begin;  // items of the part
  uint32_t part_tile;   // its first tile
  uint32_t items_of_tile;

  static constexpr int kPasses = (kTieBits + kPassBits - 1) / kPassBits;
  static_assert(kPasses % 2 == 1, "the last pass writes `repaired`");

  __device__ __forceinline__ uint32_t item_at(uint32_t place) const {
    return call.items[place] & ~kMixed;
  }
  __device__ __forceinline__ uint64_t hash_of(uint32_t item) const {
    return hash_key(call.ids[item], hash);
  }

  // A distinct id begins here, and not with the run: that has been counted.
  __device__ __forceinline__ void count_at(uint32_t place) const {
    atomicAdd(call.counts + part_tile + (place - part_begin) / items_of_tile, 1u);
  }

  // A thread an item, which compares itself with all others.
  __device__ __forceinline__ void sort_short() const {
    auto const i = threadIdx.x;
    auto const exists = i < run.size();
    auto const item = exists ? item_at(run.begin + i) : 0;
    auto const hash = exists ? hash_of(item) : 0;
    memory.hashes[i] = hash;
    __syncthreads();
    if (!exists) return;
    uint32_t rank = 0;
    auto is_first = true;  // of its id
    for (uint32_t other = 0; other < run.size(); ++other) {
      auto const its = memory.hashes[other];
      auto const is_same = its == hash && other < i;
      rank += its < hash || is_same ? 1 : 0;
      is_first &= !is_same;
    }
    call.repaired[run.begin + rank] = item;
    call.items[run.begin + i] = item | kMixed;
    if (is_first && rank > 0) count_at(run.begin + rank);
  }

  __device__ __forceinline__ uint32_t digit_of(uint32_t item, int pass) const {
    return static_cast<uint32_t>(hash_of(item) >> (pass * kPassBits)) % kDigits;
  }

  // Where the first item of each digit goes, into memory.base.
  template <class ItemAt>
  __device__ __forceinline__ void place_digits(int pass, ItemAt const& at) const {
    memory.base[threadIdx.x] = 0;
    __syncthreads();
    for (auto i = run.begin + threadIdx.x; i < run.end; i += kThreads) {
      atomicAdd(memory.base + digit_of(at(i), pass), 1u);
    }
    __syncthreads();
    auto const own = memory.base[threadIdx.x];
    memory.base[threadIdx.x] = run.begin + sum_before({own, 0}, memory.of_warps).x;
  }

  template <class ItemAt>
  __device__ __forceinline__ void radix_pass(int pass, ItemAt const& at, uint32_t* to) const {
    place_digits(pass, at);
    auto& ranked = memory.ranked[threadIdx.x / 32];
    for (auto begin = run.begin; begin < run.end; begin += kThreads) {
      clear_counts(ranked);
      auto const exists = threadIdx.x < run.end - begin;
      auto const item = exists ? at(begin + threadIdx.x) : 0;
      auto const digit = exists ? digit_of(item, pass) : 0;
      uint32_t rank[1];
      rank_in_warp(ranked, threadIdx.x, run.end - begin, [&](int) { return digit; }, rank);
      __syncthreads();
      auto const total = total_of_warps(memory.ranked);
      __syncthreads();
      if (exists) to[memory.base[digit] + ranked[digit] + rank[0]] = item;
      __syncthreads();
      memory.base[threadIdx.x] += total;
    }
    __syncthreads();
  }

  __device__ __forceinline__ void sort_long() const {
    radix_pass(0, [&](uint32_t place) { return item_at(place); }, call.repaired);
#pragma unroll 1
    for (int pass = 1; pass < kPasses; ++pass) {
      auto* const from = pass % 2 == 1 ? call.repaired : call.spare;
      auto* const to = pass % 2 == 1 ? call.spare : call.repaired;
      radix_pass(pass, [&](uint32_t place) { return from[place]; }, to);
    }
    for (auto i = run.begin + threadIdx.x; i < run.end; i += kThreads) {
      if (i > run.begin && call.ids[call.repaired[i]] != call.ids[call.repaired[i - 1]]) {
        count_at(i);
      }
      call.items[i] |= kMixed;
    }
  }

  __device__ __forceinline__ void sort() const {
    if (run.size() <= kThreads) {
      sort_short();
    } else {
      sort_long();
    }
  }
};

// Of the thread's places in a tile; the next ones are a warp apart.
template <int kItems>
__device__ __forceinline__ uint32_t first_in_tile() {
  return threadIdx.x / 32 * (32 * kItems) + static_cast<uint32_t>(lane_id());
}

// The value that belongs to the place before the thread's u-th. What comes before the first place
// of the warp, lane 0 says.
template <class T, int kCount>
__device__ __forceinline__ T value_before(T const (&values)[kCount], int u, T before_all) {
  auto const given = u > 0 && lane_id() == 31 ? values[u > 0 ? u - 1 : 0] : values[u];
  auto const value = __shfl_sync(kFullWarp, given, (lane_id() + 31) % 32);
  return u == 0 && lane_id() == 0 ? before_all : value;
}

// The mixed runs that a tile sees.
struct TieFinder {
  TiesCall const& call;
  TiesMemory& memory;
  uint32_t part_begin, part_end;  // items of the part

  __device__ __forceinline__ Key id_at(uint32_t place) const {
    return call.ids[call.items[place] & ~kMixed];
  }
  // Whether the place belongs to the run of the one before.
  __device__ __forceinline__ bool continues(uint32_t place) const {
    return place > part_begin && call.keys[place] == call.keys[place - 1];
  }

  // The boundaries of two ids in a run among the thread's places, a bit each: kCount of them, a
  // warp apart. Few of the loads wait for others.
  template <int kCount>
  __device__ __forceinline__ uint32_t look(uint32_t first, uint32_t end, uint32_t* distinct) const {
    uint32_t keys[kCount], items[kCount];
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      auto const place = first + u * 32;
      keys[u] = place < end ? call.keys[place] : kPaddingSortKey;
      items[u] = place < end ? call.items[place] & ~kMixed : 0;
    }
    auto const has_before = lane_id() == 0 && first > part_begin && first < end;
    auto const key_before = has_before ? call.keys[first - 1] : kPaddingSortKey;
    auto const item_before = has_before ? call.items[first - 1] & ~kMixed : 0;

    unsigned same[kCount + 1];  // lanes with the key of the place before
    same[kCount] = 0;
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      auto const before = value_before(keys, u, key_before);
      auto const is_live = keys[u] != kPaddingSortKey;
      auto const is_same = is_live && keys[u] == before;
      same[u] = __ballot_sync(kFullWarp, is_same);
      *distinct += is_live && !is_same ? 1 : 0;
    }
    Key ids[kCount];
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      auto const wanted = same[u] | same[u] >> 1 | same[u + 1] << 31;
      ids[u] = (wanted >> lane_id() & 1) != 0 ? call.ids[items[u]] : 0;
    }
    auto const id_before = lane_id() == 0 && (same[0] & 1) != 0 ? call.ids[item_before] : 0;
    uint32_t boundaries = 0;
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      auto const is_other = ids[u] != value_before(ids, u, id_before);
      boundaries |= ((same[u] >> lane_id() & 1) != 0 && is_other ? 1u : 0) << u;
    }
    return boundaries;
  }

  // Returns the least of what the threads propose.
  __device__ __forceinline__ uint32_t least(uint32_t own) const {
    __syncthreads();  // all threads have read the last one
    if (threadIdx.x == 0) memory.least = kNowhere;
    __syncthreads();
    if (own != kNowhere) atomicMin(&memory.least, own);
    __syncthreads();
    return memory.least;
  }

  // Back from a boundary of two ids: the beginning of the run, or another boundary, if that is
  // nearer.
  __device__ __forceinline__ uint32_t before(uint32_t boundary) const {
    for (auto distance = threadIdx.x + 1;; distance += kThreads) {
      auto own = kNowhere;
      if (distance <= boundary - part_begin) {
        auto const place = boundary - distance;
        if (!continues(place) || id_at(place) != id_at(place - 1)) own = distance;
      }
      auto const found = least(own);
      if (found != kNowhere) return boundary - found;
    }
  }

  // Where the run ends, or `most`, if that is less.
  __device__ __forceinline__ uint32_t end_of_run(uint32_t boundary, uint32_t most) const {
    for (auto place = boundary + 1 + threadIdx.x;; place += kThreads) {
      auto const found = least(place >= most || !continues(place) ? place : kNowhere);
      if (found != kNowhere) return min(found, most);
    }
  }
};

template <int kItems>
__global__ void __launch_bounds__(kThreads, 4) ties_kernel(__grid_constant__ TiesCall const call) {
  __shared__ TiesMemory memory;
  constexpr uint32_t kTile = kItems * kThreads;
  auto const [segment, begin, count] = tile_of_segments(call.segments, blockIdx.x, kTile);
  auto const part_begin = call.segments.first_item[segment];
  TieFinder const finder{call, memory, part_begin, call.segments.first_item[segment + 1]};
  if (threadIdx.x == 0) memory.distinct = 0;

  auto const first = begin + first_in_tile<kItems>();
  constexpr int kTogether = kItems < 8 ? kItems : 8;
  uint32_t distinct = 0, boundaries = 0;
#pragma unroll
  for (int u = 0; u < kItems; u += kTogether) {
    boundaries |= finder.template look<kTogether>(first + u * 32, begin + count, &distinct) << u;
  }
  auto const first_behind = [&](uint32_t end) {
    for (auto left = boundaries; left != 0; left &= left - 1) {
      auto const place = first + static_cast<uint32_t>(__ffs(static_cast<int>(left)) - 1) * 32;
      if (place >= end) return place;
    }
    return kNowhere;
  };
  auto boundary = finder.least(first_behind(begin));
  atomicAdd(&memory.distinct, distinct);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(call.counts + call.tiles_before + blockIdx.x, memory.distinct);

  while (boundary != kNowhere) {
    auto const run_begin = finder.before(boundary);
    auto const is_own = !finder.continues(run_begin);
    auto const end = finder.end_of_run(boundary, is_own ? finder.part_end : begin + count);
    if (is_own) {
      auto const part_tile = call.tiles_before + call.segments.first_tile[segment];
      RunSorter const sorter{call,      memory, {run_begin, end}, call.hash[segment], part_begin,
                             part_tile, kTile};
      sorter.sort();
    }
    boundary = finder.least(first_behind(end));
  }
}

}  // namespace dynemb::cuda
