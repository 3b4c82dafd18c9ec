// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/find_ids.cuh: the probe of a serving lookup, which changes nothing in the table.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/find.h"
#include "cuda/lookup/probe.cuh"
#include "cuda/lookup/row_copier.cuh"

namespace dynemb::cuda {

struct FindIds {
  static constexpr bool kTrains = false;
  static constexpr int kBlock = 32;  // the room of a warp that is done is free for the next
  static constexpr int kPooledIds = 2;
  struct Begin {};

  bool begins() const { return false; }

  // A lane takes two ids, or one for each of its tiles.
  static int ids_of_bags(int tiles) { return 32 * std::max(kPooledIds, tiles); }

  __device__ __forceinline__ Initializer const& missing(TableRef const& table) const {
    return table.eval_initializer;
  }

  template <int kIds>
  __device__ __forceinline__ void probe(Here const& here, int64_t first, int64_t last,
                                        bool /*draws*/, Probed (&ids)[kIds]) const {
    auto const& feature = here.feature;
    Key keys[kIds];
    Found found[kIds];
    load_keys(feature, first, last, keys);
    find_slots<false>(here.table, keys, found);
#pragma unroll
    for (int i = 0; i < kIds; ++i) {
      auto const position = first + i * 32 + lane_id();
      ids[i] = {keys[i], slot_to_read(found[i].slot)};
      if (position < last) feature.slots[position] = ids[i].slot;
    }
  }

  // For a position after the last bag; all lanes of a warp call this.
  __device__ __forceinline__ void skip(Here const& here, int64_t position) const {
    if (position < here.feature.num_ids) here.feature.slots[position] = kPaddingSlot;
  }

  __device__ __forceinline__ void touch(Here const& /*here*/, Probed const& /*id*/,
                                        int64_t /*position*/) const {}
};

}  // namespace dynemb::cuda
