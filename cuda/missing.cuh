// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/missing.cuh: the ids that the probe of a training lookup did not find.
#pragma once

#include <cstdint>

#include "core/lookup.h"
#include "cuda/call.cuh"

namespace dynemb::cuda {

struct Missing {
  Key key;
  int32_t feature;
  uint32_t position;
};

struct MissingList {
  Missing* ids;     // [all ids of the call]
  Won* won;         // [all ids of the call] by claim
  uint32_t* count;  // [1]
};

struct MissingCall {
  CallView view;
  Touch const* uses;  // [tables]
  MissingList list;
};

// Reached by all lanes of a warp.
__device__ __forceinline__ void append_missing(MissingList const& list, bool missing, Key key,
                                               int32_t feature, int64_t position) {
  auto const lanes = __ballot_sync(kFullWarp, missing);
  if (lanes == 0) return;
  uint32_t first = 0;
  if (lane_id() == 0) first = atomicAdd(list.count, static_cast<uint32_t>(__popc(lanes)));
  first = __shfl_sync(kFullWarp, first, 0);
  if (missing) {
    list.ids[first + __popc(lanes & lanes_below())] = {key, feature,
                                                       static_cast<uint32_t>(position)};
  }
}

// Puts claim, store and resolve (core/lookup.h) on the stream.
cudaError_t launch_missing(MissingCall const& call, int64_t num_ids, cudaStream_t stream);

}  // namespace dynemb::cuda
