// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/tiers/rows.cu: rows of a lookup, from frames and from homes.
#include "cuda/launch.h"
#include "cuda/tiers/rows.cuh"

namespace dynemb::cuda {

size_t tier_rows_scratch_bytes(TierRowsArgs const& /*args*/) { return 0; }

cudaError_t tier_rows(TierRowsArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  return with_call_size(args.num_tables, args.num_features,
                        [&](auto size) { return launch_tier_rows<decltype(size)>(args, stream); });
}

}  // namespace dynemb::cuda
