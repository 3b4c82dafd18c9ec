// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/sort/segment_sort.cuh: a stable radix sort of the keys of several segments, each by itself.
//
// One kernel a pass: a tile of keys is ranked in shared memory; how many keys of each digit the
// tiles before it have, it reads from what they publish (Merrill and Garland, "Single-pass Parallel
// Prefix Scan with Decoupled Look-back", 2016; Adinets and Merrill, "Onesweep", 2022). A batch has
// few tiles for a GPU, most of them run together, and all wait for the first: a thread loads the
// words of several tiles at a time. Beside that wait a pass is bound by instructions, not bytes
// (benchmarks/log/gradient_sort.md). Hence the bits of a digit, the first pass and full tiles are
// known when it is compiled.
//
// Unlike cub's sort: digits are counted where keys are made and in the first pass, one kernel less;
// what has to be zero is cleared where keys are made, another one less; segments are free, where
// cub would sort by more bits; the positions of the first pass are never written.
#pragma once

#include <cstdint>

#include "cuda/grid/host.h"
#include "cuda/grid/warp.cuh"
#include "cuda/sort/digit_rank.cuh"
#include "cuda/sort/segments.cuh"

namespace dynemb::cuda {

constexpr int kLookBack = 16;  // tiles read at a time

static_assert(kDigits == kThreads, "a thread a digit");

// A block counts the digits of its keys here.
struct DigitCounts {
  uint32_t of_pass[kMostPasses][kDigits];

  __device__ __forceinline__ void clear() {
    for (auto& counts : of_pass) counts[threadIdx.x] = 0;
  }

  // In all passes but the first.
  template <int kBits, class Key>
  __device__ __forceinline__ void add(int passes, Key key) {
#pragma unroll
    for (int pass = 1; pass < kMostPasses; ++pass) {
      if (pass >= passes) break;
      auto const digit = static_cast<uint32_t>(key >> (pass * kBits)) & ((1u << kBits) - 1);
      atomicAdd(&of_pass[pass][digit], 1u);
    }
  }

  // When all threads of the block have added theirs.
  __device__ __forceinline__ void flush(SortTally const& tally, int32_t segment, int passes) const {
    for (int pass = 1; pass < passes; ++pass) {
      auto const count = of_pass[pass][threadIdx.x];
      if (count != 0) atomicAdd(tally.counts_of(segment, passes, pass) + threadIdx.x, count);
    }
  }
};

// A word of a tile says of one digit: nothing yet (0), its own keys, or also those of all tiles
// before.
constexpr uint32_t kOwn = 1u << 30;
constexpr uint32_t kAll = 2u << 30;
constexpr uint32_t kCountMask = kOwn - 1;

__device__ __forceinline__ uint32_t published(uint32_t const* word) {
#ifdef __CUDA_ARCH__
  uint32_t value;
  asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(value) : "l"(word));
  return value;
#else
  return *word;
#endif
}

__device__ __forceinline__ void publish(uint32_t* word, uint32_t value) {
#ifdef __CUDA_ARCH__
  asm volatile("st.relaxed.gpu.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
#else
  *word = value;
#endif
}

template <class Key, int kMostSegments>
struct SortPass {
  Key const* keys_in;  // of the first pass: its items are in order
  KeyedItem<Key> const* pairs_in;
  KeyedItem<Key>* pairs_out;
  Key* keys_out;        // of the last pass,
  uint32_t* items_out;  // and their items
  SortTally tally;
  int pass;
  int passes;
  uint32_t num_tiles;
  bool takes_tickets;
  Segments<kMostSegments> segments;
};

template <class Key, int kItems>
struct TileMemory {
  static constexpr int kTile = kItems * kThreads;

  uint32_t ranked[kWarpsPerBlock][kDigits];  // keys of each digit in the warps before
  uint32_t base[kDigits];
  uint2 of_warps[kWarpsPerBlock];
  uint32_t tile;
  DigitCounts later;  // of the passes after the first, counted there
  KeyedItem<Key> pairs[kTile];
};

// kFirst: the first pass. kBits: of a digit; threads past the last digit have none.
template <bool kFirst, int kBits, class Key, int kItems, int kMostSegments>
struct TileSorter {
  static constexpr uint32_t kOfPass = 1u << kBits;  // digits

  SortPass<Key, kMostSegments> const& pass;
  TileMemory<Key, kItems>& memory;
  uint32_t tile;
  int32_t segment;
  uint32_t begin;  // items of the tile
  uint32_t count;  //

  __device__ __forceinline__ uint32_t digit_of(Key key) const {
    return static_cast<uint32_t>(key >> (pass.pass * kBits)) & (kOfPass - 1);
  }

  __device__ __forceinline__ uint32_t* words_of(uint32_t some_tile) const {
    auto const row = static_cast<uint32_t>(pass.pass) * pass.num_tiles + some_tile;
    return pass.tally.words + row * kDigits + threadIdx.x;
  }

  // Words that are not written yet are loaded again, all that are needed at the same time: those up
  // to the nearest that includes all tiles before it.
  template <class WordOf>
  static __device__ __forceinline__ void wait_for(uint32_t (&words)[kLookBack],
                                                  WordOf const& word_of) {
    for (auto waits = true; waits;) {
#pragma unroll
      for (int i = 0; i < kLookBack; ++i) {
        if (words[i] == 0) words[i] = published(word_of(i));
      }
      waits = false;
      auto known = false;
#pragma unroll
      for (int i = 0; i < kLookBack; ++i) {
        waits |= !known && words[i] == 0;
        known |= (words[i] & kAll) != 0;
      }
    }
  }

  // Returns the keys of the thread's digit in the tiles of the segment before this one.
  __device__ __forceinline__ uint32_t in_tiles_before() const {
    auto const first = pass.segments.first_tile[segment];
    uint32_t sum = 0;
    for (auto next = tile; next > first; next -= kLookBack) {
      uint32_t words[kLookBack];
#pragma unroll
      for (uint32_t i = 0; i < kLookBack; ++i) words[i] = next - first > i ? 0 : kAll;
      wait_for(words, [&](int i) { return words_of(next - 1 - static_cast<uint32_t>(i)); });
#pragma unroll
      for (int i = 0; i < kLookBack; ++i) {
        sum += words[i] & kCountMask;
        if ((words[i] & kAll) != 0) return sum;
      }
    }
    return sum;
  }

  // Keys of the thread's digit that the blocks have counted which made the keys.
  __device__ __forceinline__ uint32_t sum_of_rows() const {
    constexpr uint32_t kInFlight = 16;
    auto const end = pass.segments.first_row[segment + 1];
    uint32_t sum = 0;
#pragma unroll 1
    for (auto row = pass.segments.first_row[segment]; row < end; row += kInFlight) {
      uint32_t counts[kInFlight];
#pragma unroll
      for (uint32_t i = 0; i < kInFlight; ++i) {
        counts[i] = row + i < end ? pass.tally.rows[(row + i) * kDigits + threadIdx.x] : 0;
      }
#pragma unroll
      for (auto const count : counts) sum += count;
    }
    return sum;
  }

  // Counts the keys of the segment with the thread's digit.
  __device__ __forceinline__ uint32_t keys_of_segment() const {
    if (threadIdx.x >= kOfPass) return 0;
    if constexpr (kFirst) return sum_of_rows();
    return pass.tally.counts_of(segment, pass.passes, pass.pass)[threadIdx.x];
  }

  // kFull: the tile has all its items, as all of a segment have but the last.
  template <bool kFull>
  __device__ __forceinline__ void sort() const {
    auto const thread = threadIdx.x;
    auto const first = thread / 32 * (32 * kItems) + static_cast<uint32_t>(lane_id());
    KeyedItem<Key> pairs[kItems];
    uint32_t ranks[kItems];
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      auto const i = first + u * 32;
      pairs[u] = kFull || i < count ? pair_at(begin + i) : KeyedItem<Key>{};
    }
    auto const in_segment = keys_of_segment();
    rank_in_warp<kBits, kFull>(
        memory.ranked[thread / 32], first, count, [&](int u) { return digit_of(pairs[u].key); },
        ranks);
    __syncthreads();
    auto const own = total_of_warps(memory.ranked);
    auto const is_first = tile == pass.segments.first_tile[segment];
    if (thread < kOfPass) publish(words_of(tile), own | (is_first ? kAll : kOwn));
    auto const before = sum_before({own, in_segment}, memory.of_warps);
    memory.base[thread] = before.x;
    __syncthreads();
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      if (!kFull && first + u * 32 >= count) continue;
      auto const key = pairs[u].key;
      auto const digit = digit_of(key);
      memory.pairs[memory.base[digit] + memory.ranked[thread / 32][digit] + ranks[u]] = pairs[u];
      if constexpr (kFirst) memory.later.template add<kBits>(pass.passes, key);
    }
    auto const others = thread < kOfPass ? in_tiles_before() : 0;
    if (!is_first && thread < kOfPass) publish(words_of(tile), (others + own) | kAll);
    __syncthreads();
    memory.base[thread] = pass.segments.first_item[segment] + before.y + others - before.x;
    if constexpr (kFirst) memory.later.flush(pass.tally, segment, pass.passes);
    __syncthreads();
    if (pass.pass < pass.passes - 1) {
      write<kFull>([&](uint32_t to, KeyedItem<Key> const& pair) { pass.pairs_out[to] = pair; });
    } else {
      write<kFull>([&](uint32_t to, KeyedItem<Key> const& pair) {
        pass.keys_out[to] = pair.key;
        pass.items_out[to] = pair.item;
      });
    }
  }

  __device__ __forceinline__ KeyedItem<Key> pair_at(uint32_t item) const {
    if constexpr (kFirst) return {pass.keys_in[item], item};
    return pass.pairs_in[item];
  }

  // Calls store(where to, pair) for the thread's part of the tile, which is in order.
  template <bool kFull, class Store>
  __device__ __forceinline__ void write(Store const& store) const {
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      auto const i = threadIdx.x + u * kThreads;
      if (!kFull && i >= count) break;
      auto const pair = memory.pairs[i];
      store(memory.base[digit_of(pair.key)] + i, pair);
    }
  }

  __device__ __forceinline__ void run() const {
    if (count == TileMemory<Key, kItems>::kTile) {
      sort<true>();
    } else {
      sort<false>();
    }
  }
};

// No deadlock: a tile waits for running tiles only. Tiles are handed out in order, or there is room
// for all.
template <bool kFirst, int kBits, class Key, int kItems, int kMostSegments>
__global__ void __launch_bounds__(kThreads)
    sort_pass_kernel(__grid_constant__ SortPass<Key, kMostSegments> const pass) {
  wait_for_earlier();
  if (pass.takes_tickets) let_next_begin();
#ifdef __CUDACC__
  extern __shared__ uint4 shared[];
#else  // tests/cuda, where there is no GPU
  auto* const shared = memory_of_block();
#endif
  auto& memory = *reinterpret_cast<TileMemory<Key, kItems>*>(shared);
  clear_counts(memory.ranked[threadIdx.x / 32]);
  if constexpr (kFirst) memory.later.clear();
  auto tile = blockIdx.x;
  if (pass.takes_tickets) {
    if (threadIdx.x == 0) memory.tile = atomicAdd(pass.tally.tickets + pass.pass, 1u);
    __syncthreads();
    tile = memory.tile;
  }
  constexpr uint32_t kTile = TileMemory<Key, kItems>::kTile;
  auto const [segment, begin, count] = tile_of_segments(pass.segments, tile, kTile);
  TileSorter<kFirst, kBits, Key, kItems, kMostSegments>{pass, memory, tile, segment, begin, count}
      .run();
}

// ---- host ---------------------------------------------------------------------------------------

template <bool kFirst, int kBits, int kItems, class Key, int kMostSegments>
cudaError_t launch_sort_pass(SortPass<Key, kMostSegments> pass, cudaStream_t stream) {
  constexpr auto kBytes = sizeof(TileMemory<Key, kItems>);
  auto const kernel = sort_pass_kernel<kFirst, kBits, Key, kItems, kMostSegments>;
  if constexpr (kBytes > 48 * 1024) {
    DYNEMB_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(kBytes)));
  }
  pass.takes_tickets = pass.num_tiles > blocks_side_by_side(kernel, kBytes);
  return launch_early(kernel, pass.num_tiles, stream, pass, kBytes);
}

template <bool kFirst, int kBits, class Pass>
cudaError_t launch_sort_pass(SortLayout const& layout, Pass const& pass, cudaStream_t stream) {
  if (layout.items_of_thread == 4) return launch_sort_pass<kFirst, kBits, 4>(pass, stream);
  return launch_sort_pass<kFirst, kBits, 16>(pass, stream);
}

template <bool kFirst, class Pass>
cudaError_t launch_sort_pass(SortLayout const& layout, Pass const& pass, cudaStream_t stream) {
  if (layout.bits_of_pass == kFewestPassBits) {
    return launch_sort_pass<kFirst, kFewestPassBits>(layout, pass, stream);
  }
  return launch_sort_pass<kFirst, kPassBits>(layout, pass, stream);
}

// Sorts buffers.keys[0], with items that ascend; returns in `result` which of the buffers holds the
// sorted keys and items.
template <class Key, int kMostSegments>
cudaError_t sort_segments(SortBuffers<Key> const& buffers, SortLayout const& layout,
                          Segments<kMostSegments> const& segments, cudaStream_t stream,
                          int* result) {
  *result = 0;
  for (int p = 0; p < layout.passes; ++p) {
    auto const from = *result, to = 1 - from;
    SortPass<Key, kMostSegments> const pass{buffers.keys[from],
                                            buffers.pairs[from],
                                            buffers.pairs[to],
                                            buffers.keys[to],
                                            buffers.items[to],
                                            buffers.tally,
                                            p,
                                            layout.passes,
                                            segments.first_tile[segments.count],
                                            true,
                                            segments};
    DYNEMB_CUDA_TRY(p == 0 ? launch_sort_pass<true>(layout, pass, stream)
                           : launch_sort_pass<false>(layout, pass, stream));
    *result = to;
  }
  return cudaSuccess;
}

}  // namespace dynemb::cuda
