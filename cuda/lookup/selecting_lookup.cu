// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/selecting_lookup.cu: training lookups in which a table keeps scores as they are, or
// an id stands for several. Compiled for calls of any size only.
#include "cuda/lookup/lookup_ids.cuh"

namespace dynemb::cuda {

cudaError_t launch_selecting_lookup(LookupArgs const& args, LookupScratch const& scratch,
                                    cudaStream_t stream) {
  return launch_lookup<true, CallSize<kMaxTables, kMaxFeatures>>(args, scratch, stream);
}

}  // namespace dynemb::cuda
