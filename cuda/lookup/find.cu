// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// cuda/lookup/find.cu: serving lookup: one kernel, which changes nothing in the table.
#include "cuda/launch.h"
#include "cuda/lookup/find_ids.cuh"
#include "cuda/lookup/probe_rows.cuh"

namespace dynemb::cuda {

size_t find_scratch_bytes(FindArgs const& /*args*/) { return 0; }

cudaError_t find(FindArgs const& args, void* /*scratch*/, cudaStream_t stream) {
  if (!is_countable(args)) return cudaErrorInvalidValue;
  return with_call_size(args.num_tables, args.num_features, [&](auto size) {
    return launch_rows<decltype(size)>(args, {}, {}, FindIds{}, stream);
  });
}

}  // namespace dynemb::cuda
