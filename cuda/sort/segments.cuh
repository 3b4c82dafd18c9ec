// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/sort/segments.cuh: what the kernels around a sort of segments (cuda/sort/segment_sort.cuh)
// share: which items are sorted among themselves, how, and the memory for it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/grid/host.h"
#include "cuda/sort/digit_rank.cuh"

namespace dynemb::cuda {

constexpr int kMostPasses = 4;

// A segment is a range of items. Tiles of all segments are numbered together, and so are rows: a
// row is what one block of the kernel that makes the keys has counted.
template <int kMostSegments>
struct Segments {
  int32_t count;
  uint32_t first_item[kMostSegments + 1];
  uint32_t first_tile[kMostSegments + 1];
  uint32_t first_row[kMostSegments + 1];
};

// What one block sorts, or works on, at a time.
struct SegmentTile {
  int32_t segment;
  uint32_t begin;  // items
  uint32_t count;  //
};

// The segment that tile, or row, `at` belongs to: the last that begins no later.
template <int kFirsts>
__device__ __forceinline__ int32_t segment_at(uint32_t const (&first)[kFirsts], int32_t count,
                                              uint32_t at) {
  int32_t low = 0, high = count;  // first[low] <= at < first[high]
  while (high - low > 1) {
    auto const middle = (low + high) / 2;
    (first[middle] <= at ? low : high) = middle;
  }
  return low;
}

template <int kMostSegments>
__device__ __forceinline__ SegmentTile tile_of_segments(Segments<kMostSegments> const& segments,
                                                        uint32_t tile, uint32_t items_of_tile) {
  auto const s = segment_at(segments.first_tile, segments.count, tile);
  auto const begin = segments.first_item[s] + (tile - segments.first_tile[s]) * items_of_tile;
  return {s, begin, min(segments.first_item[s + 1] - begin, items_of_tile)};
}

struct SortLayout {
  int bits;    // of a key that are sorted by, the lowest
  int passes;  // over them
  int bits_of_pass;
  int items_of_thread;  // of a tile: fewer in a small batch, so that all multiprocessors have work

  SortLayout() = default;
  SortLayout(int bits, int64_t num_items)
      : bits(std::max(bits, 1)),
        passes((this->bits + kPassBits - 1) / kPassBits),
        bits_of_pass(std::max((this->bits + passes - 1) / passes, kFewestPassBits)),
        items_of_thread(num_items <= kSmallBatch ? 4 : 16) {}

  int64_t items_of_tile() const { return int64_t{items_of_thread} * kThreads; }

  // A key that has all ones there is the last of its segment.
  __host__ __device__ uint32_t digit_mask() const { return (1u << bits_of_pass) - 1; }
};

// Counts how many keys have which digit. The kernel that makes the keys counts those of the first
// pass, a row for each block, and clears the rest. The first pass counts for the others.
struct SortTally {
  uint32_t* rows;        // [rows, kDigits]
  uint32_t* counts;      // [segments, passes, kDigits] the first pass is left out
  uint32_t* tickets;     // [kMostPasses] right behind: tiles handed out so far
  uint32_t* words;       // [passes, tiles, kDigits] right behind: what tiles publish
  uint32_t num_cleared;  // from `counts` on; a multiple of 4

  // Thread `rank` of `size` calls this in a kernel before the first pass.
  __device__ __forceinline__ void clear(uint32_t rank, uint32_t size) const {
    auto* const quads = reinterpret_cast<uint4*>(counts);
    for (auto i = rank; i < num_cleared / 4; i += size) quads[i] = {0, 0, 0, 0};
  }

  __device__ __forceinline__ uint32_t* counts_of(int32_t segment, int passes, int pass) const {
    return counts + (segment * passes + pass) * kDigits;
  }
};

// ---- host ---------------------------------------------------------------------------------------

constexpr int kKeysThreads = 1024;  // of a block that makes keys

// Items of such a block, at least `least`; a segment has at most kMostRows of them, because every
// tile of the first pass adds them up.
constexpr int64_t kMostRows = 64;

inline int64_t items_of_row(int64_t largest_segment, int64_t least) {
  auto const needed = ceil_div(ceil_div(largest_segment, kMostRows), kKeysThreads) * kKeysThreads;
  return std::max(least, needed);
}

// Between two passes a key and its item are one word: half as many reads and writes.
template <class Key>
struct alignas(2 * sizeof(Key)) KeyedItem {
  Key key;
  uint32_t item;
};

// The memory of a sort: two buffers that it goes between, and its tally. It begins with the keys
// of the first buffer, and ends with keys and items of one of them.
template <class Key>
struct SortBuffers {
  KeyedItem<Key>* pairs[2];  // [items]
  Key* keys[2];              // [items] in the same memory,
  uint32_t* items[2];        // [items] behind the keys
  SortTally tally;

  // Takes memory for at most so many segments and rows.
  SortBuffers(SortLayout const& layout, int64_t num_items, int64_t num_segments, int64_t num_rows,
              Scratch& scratch) {
    for (int i = 0; i < 2; ++i) {
      pairs[i] = scratch.take<KeyedItem<Key>>(num_items);
      keys[i] = reinterpret_cast<Key*>(pairs[i]);
      items[i] = reinterpret_cast<uint32_t*>(keys[i] + num_items);
    }
    // At most: when scratch is measured, the segments of the items are not known yet.
    auto const tiles = num_items / layout.items_of_tile() + num_segments;
    auto const counts = num_segments * layout.passes * kDigits;
    auto const cleared = counts + kMostPasses + tiles * layout.passes * kDigits;
    tally.rows = scratch.take<uint32_t>(num_rows * kDigits);
    tally.counts = scratch.take<uint32_t>(cleared);
    tally.tickets = tally.counts + counts;
    tally.words = tally.tickets + kMostPasses;
    tally.num_cleared = static_cast<uint32_t>(cleared);
  }
};

}  // namespace dynemb::cuda
