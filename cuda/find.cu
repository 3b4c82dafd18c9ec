// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/find.cu: serving lookup: one kernel, which changes nothing in the table.
#include "core/find.h"
#include "cuda/launch.h"
#include "cuda/lookup_rows.cuh"
#include "cuda/probe.cuh"

namespace dynemb::cuda {
namespace {

struct FindIds {
  static constexpr bool kTrains = false;
  static constexpr int kBlock = 32;  // the room of a warp that is done is free for the next
  struct Begin {};

  bool begins() const { return false; }

  __device__ __forceinline__ Initializer const& missing(TableRef const& table) const {
    return table.eval_initializer;
  }

  __device__ __forceinline__ Probed probe(Here const& here, int64_t position, bool active,
                                          bool /*draws*/) const {
    if (!active) return {kEmptyKey, kPaddingSlot};
    auto const& feature = here.feature;
    auto const key = load_key(feature.ids, feature.id_type, position);
    auto slot = find_slot(here.table, key);
    if (slot == kMissingSlot) slot = kRefusedSlot;
    feature.slots[position] = slot;
    return {key, slot};
  }

  __device__ __forceinline__ void touch(Here const& /*here*/, Probed const& /*id*/) const {}
};

}  // namespace

size_t find_scratch_bytes(FindArgs const& /*args*/) { return 0; }

cudaError_t find(FindArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  if (!is_countable(args)) return cudaErrorInvalidValue;
  return with_call_size(args.num_tables, args.num_features, [&](auto size) {
    return launch_rows<decltype(size)>(args, {}, {}, FindIds{}, stream);
  });
}

}  // namespace dynemb::cuda
