// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/missing.cuh: the ids that the probe of a training lookup did not find, and what is done
// about them.
#pragma once

#include <cstdint>

#include "core/lookup.h"
#include "cuda/prologue.cuh"

namespace dynemb::cuda {

struct alignas(16) Missing {
  Key key;
  uint32_t position;
  uint16_t feature;
  Won won;
  bool has_row;  // the probe has written the first values of the slot's row
};
static_assert(sizeof(Missing) == 16, "read and written at once");

struct MissingCounts {
  uint32_t ids;
  uint32_t full;  // not 0: for some the bucket had no empty slot
};

struct MissingList {
  Missing* ids;           // [all ids of the call]
  uint32_t* arrived;      // [1] blocks at a barrier, 0 before
  MissingCounts* counts;  // [1] a counter of the first table (kWaiting)
};

struct MissingCall {
  CallView view;
  Touch const* uses;           // [tables]
  CounterRows const* counted;  // [tables] what the lookup changes in their counters
  MissingList list;
  bool counts_uses;  // some table has packed scores: core/lookup.h, stores()
};

// Puts the ids of the lanes in `lanes` on the list. Reached by all lanes of a warp.
__device__ __forceinline__ void append_missing(MissingList const& list, unsigned lanes,
                                               Missing const& id) {
  uint32_t first = 0;
  if (lane_id() == 0) first = atomicAdd(&list.counts->ids, static_cast<uint32_t>(__popc(lanes)));
  first = __shfl_sync(kFullWarp, first, 0);
  if ((lanes >> lane_id() & 1) != 0) list.ids[first + __popc(lanes & lanes_below())] = id;
}

// Puts on the stream what is left of a lookup: its counters, and the phases after claims of empty
// slots (core/lookup.h): claims in full buckets, store, resolve.
cudaError_t launch_missing(MissingCall const& call, int64_t num_ids, cudaStream_t stream);

}  // namespace dynemb::cuda
