// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/table_blocks.cuh: the blocks of a kernel, cut among the tables of a call.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/tiers/tier_args.h"
#include "cuda/grid/host.h"

namespace dynemb::cuda {

struct TableBlocks {
  int32_t tables = 0;
  uint32_t first[kMaxTierTables + 1] = {};  // of each table; then their number

  void add(int64_t blocks) {
    first[tables + 1] = first[tables] + static_cast<uint32_t>(blocks);
    ++tables;
  }

  __host__ __device__ uint32_t total() const { return first[tables]; }
  __host__ __device__ uint32_t of(int32_t table) const { return first[table + 1] - first[table]; }

  // The table that a block works on, by all lanes alike.
  __device__ __forceinline__ int32_t table_of(uint32_t block) const {
    int32_t low = 0, high = tables;  // first[low] <= block < first[high]
    while (high - low > 1) {
      auto const middle = (low + high) / 2;
      (first[middle] <= block ? low : high) = middle;
    }
    return low;
  }
};

// A kernel with a thread for each id has so many blocks.
template <class OfTable>
int64_t blocks_of_ids(OfTable const& table) {
  return persistent_blocks(ceil_div(table.num_ids, kThreads), 8);
}

}  // namespace dynemb::cuda
