// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/sort/cluster_sort.cuh: a stable radix sort of up to 65,536 keys by one cluster of blocks.
//
// Each block holds a slice of the sequence in its shared memory. In a pass it ranks the keys of its
// slice by one digit, writes its counts to all blocks, and writes every key to its place, in any
// block's memory. Barriers of the cluster stand where cuda/sort/segment_sort.cuh needs the end of a
// kernel. Nothing in global memory has to be cleared.
#pragma once

#include <cstdint>

#include "cuda/grid/cluster.cuh"
#include "cuda/grid/warp.cuh"
#include "cuda/sort/digit_rank.cuh"

namespace dynemb::cuda {

constexpr int kSortThreads = 1024;
constexpr int kSortWarps = kSortThreads / 32;
constexpr int kSliceItems = 4;                           // of a thread
constexpr uint32_t kSlice = kSliceItems * kSortThreads;  // items of a block
constexpr int kMostSlices = 16;                          // of a cluster
constexpr int kColumns = kSortThreads / kDigits;         // threads of a digit
constexpr int kWarpsOfColumn = kSortWarps / kColumns;

// A key is x and its item y: they travel together.
using SortPair = uint2;

struct SliceMemory {
  SortPair pairs[2][kSlice];                 // the slice, before a pass and after it, in turns
  uint32_t ranked[kSortWarps][kDigits];      // keys of each digit in the warps before
  uint32_t of_slices[kMostSlices][kDigits];  // keys of each digit in each slice: they write it here
  uint32_t of_columns[kColumns][kDigits];    // and in each part of this one's warps
  uint32_t totals[kDigits];                  // and in all of them
  uint32_t base[kDigits];                    // what is added to a key's rank to find its place
  uint32_t of_warps[kDigits / 32];
};

struct SliceSorter {
  SliceMemory& memory;
  uint32_t num_items;  // of the cluster
  uint32_t rank;       // of the block in it
  uint32_t num_slices;
  int bits;  // of a pass

  static __device__ __forceinline__ uint32_t thread() { return threadIdx.x; }
  static __device__ __forceinline__ uint32_t warp() { return thread() / 32; }
  static __device__ __forceinline__ uint32_t digit_of_thread() { return thread() % kDigits; }
  static __device__ __forceinline__ uint32_t column() { return thread() / kDigits; }

  // The first of the thread's places in the slice; the next ones are 32 apart.
  static __device__ __forceinline__ uint32_t first() {
    return warp() * (32 * kSliceItems) + static_cast<uint32_t>(lane_id());
  }

  __device__ __forceinline__ uint32_t begin() const { return rank * kSlice; }
  __device__ __forceinline__ uint32_t count() const {
    return begin() < num_items ? min(num_items - begin(), kSlice) : 0;
  }

  __device__ __forceinline__ uint32_t digit_of(uint32_t key, int pass) const {
    return key >> (pass * bits) & ((1u << bits) - 1);
  }

  // Returns how many keys of the thread's digit the slice has. Before, memory.ranked holds those of
  // each warp, afterwards those of the warps before.
  __device__ __forceinline__ uint32_t total_of_warps() const {
    auto const digit = digit_of_thread();
    auto const first_warp = column() * kWarpsOfColumn;
    uint32_t own[kWarpsOfColumn], sum = 0;
#pragma unroll
    for (int w = 0; w < kWarpsOfColumn; ++w) {
      own[w] = memory.ranked[first_warp + w][digit];
      sum += own[w];
    }
    memory.of_columns[column()][digit] = sum;
    __syncthreads();
    uint32_t before = 0, total = 0;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      auto const of_column = memory.of_columns[c][digit];
      if (c < static_cast<int>(column())) before += of_column;
      total += of_column;
    }
#pragma unroll
    for (int w = 0; w < kWarpsOfColumn; ++w) {
      memory.ranked[first_warp + w][digit] = before;
      before += own[w];
    }
    return total;
  }

  // Sums `value` over the digits before the thread's, in two steps with a barrier between. The
  // first column of threads does this.
  __device__ __forceinline__ uint32_t sum_of_warp(uint32_t value) const {
    auto const sum = sum_up_to_lane(value);
    if (lane_id() == 31) memory.of_warps[warp()] = sum;
    return sum - value;
  }
  __device__ __forceinline__ uint32_t sum_of_warps_before() const {
    uint32_t sum = 0;
#pragma unroll
    for (uint32_t w = 0; w < kDigits / 32 - 1; ++w) {
      if (w < warp()) sum += memory.of_warps[w];
    }
    return sum;
  }

  // How many keys of each digit this slice has, written into the memory of all blocks.
  __device__ __forceinline__ void tell_slices() const {
    constexpr uint32_t kThreadsOfSlice = kDigits / 4;
    auto const digit = thread() % kThreadsOfSlice * 4;
    auto* const keys = reinterpret_cast<uint4*>(memory.totals + digit);
    auto* const there = reinterpret_cast<uint4*>(memory.of_slices[rank] + digit);
#pragma unroll
    for (uint32_t i = 0; i < kMostSlices; i += kSortThreads / kThreadsOfSlice) {
      auto const slice = i + thread() / kThreadsOfSlice;
      if (slice < num_slices) store_in_block(there, slice, *keys);
    }
  }

  struct OfCluster {
    uint32_t before;  // keys of the thread's digit in the slices before
    uint32_t all;
  };

  __device__ __forceinline__ OfCluster of_cluster() const {
    OfCluster result{0, 0};
#pragma unroll
    for (uint32_t slice = 0; slice < kMostSlices; ++slice) {
      auto const keys = slice < num_slices ? memory.of_slices[slice][digit_of_thread()] : 0;
      if (slice < rank) result.before += keys;
      result.all += keys;
    }
    return result;
  }

  // Writes the counts of the slice to the other blocks, and meanwhile sorts the slice into
  // `staged`, so that its keys of one digit are written together. Returns, to the first column, the
  // keys of lower digits in the slice.
  __device__ __forceinline__ uint32_t stage(SortPair const (&pairs)[kSliceItems],
                                            uint32_t const (&ranks)[kSliceItems], SortPair* staged,
                                            int pass) const {
    auto const total = total_of_warps();
    uint32_t before = 0;
    if (column() == 0) {
      memory.totals[digit_of_thread()] = total;
      before = sum_of_warp(total);
    }
    __syncthreads();
    tell_slices();
    if (column() == 0) {
      before += sum_of_warps_before();
      memory.base[digit_of_thread()] = before;
    }
    __syncthreads();
#pragma unroll
    for (int u = 0; u < kSliceItems; ++u) {
      if (first() + u * 32 >= count()) continue;
      auto const digit = digit_of(pairs[u].x, pass);
      staged[memory.base[digit] + memory.ranked[warp()][digit] + ranks[u]] = pairs[u];
    }
    cluster_arrive();  // not earlier: it waits until the counts are in the other blocks
    return before;
  }

  // When all counts are there: memory.base is, for each digit, how far its staged keys are from
  // their places in the cluster.
  __device__ __forceinline__ void aim(uint32_t before) const {
    OfCluster others{0, 0};
    uint32_t start = 0;
    if (column() == 0) {
      others = of_cluster();
      start = sum_of_warp(others.all);
    }
    __syncthreads();
    if (column() == 0) {
      start += sum_of_warps_before();
      memory.base[digit_of_thread()] = start + others.before - before;
    }
    __syncthreads();
  }

  // Hands each staged pair to `put(place in the cluster, pair)`.
  template <class Put>
  __device__ __forceinline__ void scatter(SortPair const* staged, int pass, Put const& put) const {
#pragma unroll
    for (int u = 0; u < kSliceItems; ++u) {
      auto const i = thread() + u * kSortThreads;
      if (i >= count()) break;
      auto const pair = staged[i];
      put(memory.base[digit_of(pair.x, pass)] + i, pair);
    }
  }

  // All threads of the cluster call this. `get(i)` is the pair at place i of the sequence, `put(i,
  // pair)` takes the one that is there when it is sorted.
  template <class Get, class Put>
  __device__ __forceinline__ void run(int passes, Get const& get, Put const& put) const {
    cluster_arrive_begun();
    SortPair pairs[kSliceItems];
#pragma unroll
    for (int u = 0; u < kSliceItems; ++u) {
      auto const i = first() + u * 32;
      pairs[u] = i < count() ? get(begin() + i) : SortPair{0, 0};
    }
    cluster_wait();  // all blocks have begun
#pragma unroll 1
    for (int pass = 0;; ++pass) {
      // Others write to `sorted` only when the counts of all blocks in this pass are there, so none
      // reads there what it held in the pass before.
      auto* const staged = memory.pairs[pass % 2];
      auto* const sorted = memory.pairs[1 - pass % 2];
      uint32_t ranks[kSliceItems];
      clear_counts(memory.ranked[warp()]);
      rank_in_warp(
          memory.ranked[warp()], first(), count(),
          [&](int u) { return digit_of(pairs[u].x, pass); }, ranks);
      __syncthreads();
      auto const before = stage(pairs, ranks, staged, pass);
      cluster_wait();
      aim(before);
      if (pass == passes - 1) return scatter(staged, pass, put);
      scatter(staged, pass, [&](uint32_t to, SortPair pair) {
        store_in_block(sorted + to % kSlice, to / kSlice, pair);
      });
      cluster_arrive();
      cluster_wait();
#pragma unroll
      for (int u = 0; u < kSliceItems; ++u) pairs[u] = sorted[first() + u * 32];
    }
  }
};

}  // namespace dynemb::cuda
