// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/rows.cu: rows of a lookup, from frames and from homes.
#include "cuda/launch.h"
#include "cuda/tiers/rows.cuh"

namespace dynemb::cuda {

size_t tier_rows_scratch_bytes(TierRowsArgs const& args) {
  Scratch scratch(nullptr);
  take_home_order(args, scratch);
  return scratch.used();
}

cudaError_t tier_rows(TierRowsArgs const& args, void* memory, cudaStream_t stream) {
  Scratch scratch(memory);
  return with_call_size(args.num_tables, args.num_features, [&](auto size) {
    return launch_tier_rows<decltype(size)>(args, scratch, stream);
  });
}

}  // namespace dynemb::cuda
