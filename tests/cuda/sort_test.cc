// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/cuda/sort_test.cc: the sort of segments beside std::stable_sort: keys of 32 and 64 bits,
// one pass to four, tiles of both sizes, segments that end anywhere in a tile.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "cuda/sort/segment_sort.cuh"
#include "tests/cuda/scratch_memory.h"

namespace {

using namespace dynemb;
using namespace dynemb::cuda;

constexpr int kSegments = 8;   // at most
constexpr uint32_t kRows = 3;  // of a segment: blocks that have made and counted its keys

using Sizes = std::vector<uint32_t>;

Segments<kSegments> segments_of(Sizes const& sizes, SortLayout const& layout) {
  Segments<kSegments> segments{static_cast<int32_t>(sizes.size()), {0}, {0}, {0}};
  for (size_t s = 0; s < sizes.size(); ++s) {
    auto const tiles = static_cast<uint32_t>(ceil_div(sizes[s], layout.items_of_tile()));
    segments.first_item[s + 1] = segments.first_item[s] + sizes[s];
    segments.first_tile[s + 1] = segments.first_tile[s] + tiles;
    segments.first_row[s + 1] = segments.first_row[s] + kRows;
  }
  return segments;
}

template <class Key>
Key mask_of(int bits) {
  return ~Key{0} >> (8 * int{sizeof(Key)} - bits);
}

// Random ones, many equal ones, ones of a few digits, and ones that are last. The bits above those
// that are sorted by are the segment's own.
template <class Key>
std::vector<Key> keys_of(Sizes const& sizes, int bits, std::mt19937_64& random) {
  auto const mask = mask_of<Key>(bits);
  std::vector<Key> keys;
  for (size_t s = 0; s < sizes.size(); ++s) {
    auto const upper = static_cast<Key>(uint64_t{s} << bits) & ~mask;
    for (uint32_t i = 0; i < sizes[s]; ++i) {
      auto const drawn = static_cast<Key>(random() >> 2);
      Key const kinds[] = {drawn, 7, drawn & Key{0x301}, mask};
      keys.push_back(upper | (kinds[random() % 4] & mask));
    }
  }
  return keys;
}

// The counts are then as the kernels that make keys leave them.
template <class Key>
void count_keys(SortBuffers<Key> const& buffers, SortLayout const& layout,
                Segments<kSegments> const& segments) {
  auto const& tally = buffers.tally;
  std::fill_n(tally.counts, tally.num_cleared, 0u);
  std::fill_n(tally.rows, segments.first_row[segments.count] * kDigits, 0u);
  for (int32_t s = 0; s < segments.count; ++s) {
    for (auto i = segments.first_item[s]; i < segments.first_item[s + 1]; ++i) {
      auto const row = segments.first_row[s] + i % kRows;
      auto const digit = static_cast<uint32_t>(buffers.keys[0][i]) & layout.digit_mask();
      ++tally.rows[row * kDigits + digit];
    }
  }
}

template <class Key>
void check(Sizes const& sizes, int bits, int items_of_thread, std::mt19937_64& random) {
  auto const keys = keys_of<Key>(sizes, bits, random);
  auto const n = static_cast<int64_t>(keys.size());
  auto layout = SortLayout(bits, n);
  layout.items_of_thread = items_of_thread;
  auto const segments = segments_of(sizes, layout);
  auto const take = [&](Scratch& scratch) {
    return SortBuffers<Key>(layout, n, segments.count, segments.first_row[segments.count], scratch);
  };
  Scratch measured(nullptr);
  take(measured);
  testing::ScratchMemory const memory(measured.used());
  Scratch scratch(memory.first());
  auto const buffers = take(scratch);
  std::copy(keys.begin(), keys.end(), buffers.keys[0]);
  count_keys(buffers, layout, segments);
  int last = -1;
  CHECK(sort_segments(buffers, layout, segments, nullptr, &last) == cudaSuccess);

  auto const mask = mask_of<Key>(bits);
  std::vector<uint32_t> items(keys.size());
  std::iota(items.begin(), items.end(), 0u);
  for (int32_t s = 0; s < segments.count; ++s) {
    std::stable_sort(items.begin() + segments.first_item[s],
                     items.begin() + segments.first_item[s + 1],
                     [&](uint32_t a, uint32_t b) { return (keys[a] & mask) < (keys[b] & mask); });
  }
  for (size_t i = 0; i < items.size(); ++i) {
    CHECK(buffers.items[last][i] == items[i] && buffers.keys[last][i] == keys[items[i]]);
  }
}

template <class Key>
void check_passes(std::mt19937_64& random) {
  for (int const bits : {1, 8, 13, 16, 21, 24, 28, 32}) {
    check<Key>({300, 1, 1024, 2500}, bits, 4, random);
  }
  for (int const bits : {7, 14, 20, 31}) check<Key>({4096, 9000, 0, 17}, bits, 16, random);
}

}  // namespace

int main() {
  std::mt19937_64 random(1);
  check_passes<uint32_t>(random);
  check_passes<uint64_t>(random);
  std::puts("sort: ok");
  return 0;
}
